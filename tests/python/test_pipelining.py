"""Launching is asynchronous: recording and reads go on while programs run, in bounded memory.

The fake plugin's programs run until they are told to end, so that order is seen, not timed: what
returns before `finish()` returned while the program ran.
"""

import pytest
import torch

import torch_pjrt

CODE = """
import threading
def start(x=a):
    '''Launches a program that runs until finish().'''
    y = x + b
    script("slow:1=600000")
    torch_pjrt.sync()
    return y
finish = lambda: script("")
waiters = []
def waiting(f=torch_pjrt.wait):
    '''Whether f waits: a thread that runs it is alive after a while.'''
    waiters.append(threading.Thread(target=f, daemon=True))
    waiters[-1].start()
    waiters[-1].join(1)
    return waiters[-1].is_alive()
"""


@pytest.fixture
def run_slow(run_fake):
    return lambda code, **env: run_fake(CODE + code, **env)


def test_sync_returns_before_its_program_ends(run_slow):
    said = run_slow("""
y = start()
print("running", waiting())
finish()
waiters[0].join()
print("then", y.tolist())
""")
    assert "running True" in said
    assert "then [0.0" in said


def test_read_waits_only_for_what_it_reads(run_slow):
    said = run_slow("""
small = a + 1
torch_pjrt.sync(wait=True)
y = start()
print("read", small.tolist(), "running", waiting(), "y waits", waiting(y.tolist))
finish()
for w in waiters: w.join()
""")
    assert "read [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] running True y waits True" in said


def test_recording_and_launching_go_on_while_a_program_runs(run_slow):
    said = run_slow("""
y = start()
z = y
for _ in range(50):
    z = z.tanh() + y
print(states(z))
torch_pjrt.sync()
print(states(z), "running", waiting())
finish()
waiters[0].join()
print("then", z.tolist())
""")
    assert "['ir']\n['device'] running True" in said
    assert "then [0.0" in said


def test_wait_waits_for_everything_launched(run_slow):
    said = run_slow("""
outs = [start(), start(b), start()]  # a new script ends the program before
print("running", waiting())
finish()
torch_pjrt.wait()
print("running", waiting(), waiting(outs[0].tolist))
""")
    assert "running True" in said
    assert "running False False" in said


@pytest.mark.parametrize(("depth", "blocked"), [("1", True), ("4", False)])
def test_depth_of_the_queue_is_bounded_by_its_flag(run_slow, depth, blocked):
    said = run_slow(
        """
script("slow:1=600000; slow:2=600000; slow:3=600000")
def three_steps():
    y = a
    for _ in range(3):
        y = y + b
        torch_pjrt.sync()
print("blocked", waiting(three_steps))
finish()
waiters[0].join()
""",
        TORCH_PJRT_IN_FLIGHT=depth,
    )
    assert f"blocked {blocked}" in said


def test_scalar_on_the_device_is_read_without_a_copy(device):
    x = torch.rand(8, 8).to(device).sum()
    torch_pjrt.sync(wait=True)
    before = torch_pjrt.metrics.timers().get("TransferFromDevice", (0, 0.0))[0]
    for _ in range(5):
        x.item()
    assert torch_pjrt.metrics.timers().get("TransferFromDevice", (0, 0.0))[0] == before
