"""The end of a process, and forks: never a hang, never a crash, whatever is in flight."""

import os
import time

import pytest
import torch
from fake_plugin import PRELUDE, fake_env
from torch.utils.data import DataLoader, TensorDataset

PATIENCE = 110  # seconds; hangs in these tests would last for ten minutes

EXIT = """
import atexit, signal, sys, threading, time
y = a + b
atexit.register(lambda: print("python's exit ran"))
"""


@pytest.fixture
def leaves(run_python, fake):
    """Runs code on the fake plugin; gives status and output of a process that ended in time."""

    def run(code: str) -> tuple[int, str]:
        start = time.monotonic()
        env = fake_env(fake)
        done = run_python(code=PRELUDE + EXIT + code, own_start=True, **env)
        assert time.monotonic() - start < PATIENCE
        assert "python's exit ran" in done.stdout, done.stdout + done.stderr
        return done.returncode, done.stdout + done.stderr

    return run


def test_exit_with_a_program_that_never_ends(leaves):
    status, said = leaves('script("slow:1=600000"); torch_pjrt.sync(); print("end")')
    assert status == 0, said
    assert "end" in said


def test_exit_status_is_the_programs_own(leaves):
    assert leaves('script("slow:1=600000"); torch_pjrt.sync(); sys.exit(3)')[0] == 3


def test_exit_after_an_interrupted_compile_that_never_ends(leaves):
    status, said = leaves("""
script("PJRT_Client_Compile:1=HANG 600000")
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs start without it
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
torch_pjrt.sync()
""")
    assert status not in (0, -6, -11), said
    assert "KeyboardInterrupt" in said


def test_exit_while_a_daemon_thread_waits(leaves):
    status, said = leaves("""
script("slow:1=600000"); torch_pjrt.sync()
threading.Thread(target=y.tolist, daemon=True).start()
threading.Thread(target=torch_pjrt.wait, daemon=True).start()
time.sleep(0.2)
""")
    assert status == 0, said


def test_exit_just_as_a_daemon_threads_wait_ends(run_python, fake):
    # Exit hooks that run after torch_pjrt's own and keep the GIL: the program ends, the thread asks
    # for the GIL, and Python shuts down.
    late = """
import atexit, ctypes, os, threading, time
keeps_gil = ctypes.PyDLL(os.environ["FAKE"])
atexit.register(keeps_gil.usleep, 300_000)
atexit.register(keeps_gil.fake_plugin_script, b"")
"""
    code = """
y = a + b
script("slow:1=600000"); torch_pjrt.sync()
threading.Thread(target=torch_pjrt.wait, daemon=True).start()
time.sleep(0.1)
"""
    env = fake_env(fake)
    done = run_python(code=late + PRELUDE + code, own_start=True, **env)
    assert done.returncode == 0, done.stdout + done.stderr


def test_exit_with_real_work_in_flight(run_python):
    code = """
import torch, torch_pjrt
x = torch.ones(900, 900).to("xla")
for _ in range(3):
    y = x
    for _ in range(20):
        y = y @ x / 900
    torch_pjrt.sync()
print("end", torch_pjrt.state(y))
"""
    done = run_python(own_start=True, code=code)
    assert (done.returncode, done.stdout) == (0, "end device\n"), done.stderr


@pytest.mark.parametrize("devices", [1, 2])
def test_exit_right_after_a_backward(run_python, devices):
    """Autograd's threads may then still hold the pass, and want the GIL to let go of it."""
    code = f"""
import os
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})  # the threads take turns then
import torch, torch_pjrt
x = torch.ones(3, device="xla:{devices - 1}", requires_grad=True)
(x * 2).sum().backward()
"""
    for _ in range(4):
        done = run_python(own_start=True, code=code, TORCH_PJRT_CPU_DEVICES=str(devices))
        assert done.returncode == 0, done.stderr


# ---- forks ----------------------------------------------------------------------------------


def in_child(f) -> str:
    """What f says in a forked child: its text, or its error."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(f())
        except BaseException as e:  # the child must end here whatever happens
            text = f"{type(e).__name__}: {e}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    deadline = time.monotonic() + PATIENCE
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    text = os.read(read, 1 << 16).decode()
    os.close(read)
    return text


@pytest.mark.parametrize("use", ["record", "read", "sync", "upload", "wait", "pending"])
def test_every_use_in_a_forked_child_is_told_and_does_not_hang(device, use):
    ready, pending = torch.ones(3).to(device) + 1, torch.ones(3).to(device).exp()
    ready.tolist()
    pending = pending + 1
    import torch_pjrt

    uses = {
        "record": lambda: (ready * 2).tolist(),
        "read": ready.tolist,
        "sync": torch_pjrt.sync,
        "upload": lambda: torch.ones(3).to(device).tolist(),
        "wait": torch_pjrt.wait,
        "pending": pending.tolist,
    }
    if use == "upload":  # a host tensor that nobody computed with needs no device
        assert in_child(lambda: (torch.ones(3).to(device) + 1).tolist()).startswith("RuntimeError")
        return
    said = in_child(uses[use])
    assert "forked" in said, said
    assert said.startswith("RuntimeError")
    assert ready.tolist() == [2.0, 2.0, 2.0]


def test_child_frees_inherited_tensors_without_a_hang(device):
    held = [torch.ones(64, 64).to(device) + i for i in range(4)]
    import torch_pjrt

    torch_pjrt.sync()
    assert in_child(lambda: held.clear() or "freed") == "freed"
    assert held[1].sum().item() == 2 * 64 * 64


def test_forked_child_leaves_at_once_with_its_own_status(run_python):
    code = """
import os, sys, time, torch, torch_pjrt
x = torch.ones(3, device="xla", requires_grad=True)
(x * 2).sum().backward()
print(x.grad.tolist(), flush=True)
start, pid = time.monotonic(), os.fork()
if pid == 0:
    print("child", flush=True)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), time.monotonic() - start < 5)
"""
    done = run_python(code=code)  # five seconds: as long as an exit waits for work in flight
    assert done.stdout == "[2.0, 2.0, 2.0]\nchild\n3 True\n", done.stdout + done.stderr


def test_fork_before_use_works_in_parent_and_child(run_python):
    code = """
import os, torch, torch_pjrt
pid = os.fork()
right = (torch.arange(3.0).to("xla") * 2).tolist() == [0.0, 2.0, 4.0]
if pid == 0:
    os._exit(0 if right else 1)
print(right, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    done = run_python(code=code)
    assert done.stdout == "True 0\n", done.stdout + done.stderr


FORK = """
import ctypes, os, threading, time, torch, torch_pjrt
def child_says(f, seconds=20):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = repr(f())
        except BaseException as e:
            said = f"{type(e).__name__}: {e}"
        os.write(write, said.encode())
        os._exit(0)
    end = time.monotonic() + seconds
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return "it hangs"
        time.sleep(0.01)
    os.close(write)
    return os.read(read, 4096).decode()
"""


def test_fork_beside_a_sync_gives_a_child_that_is_told(run_python):
    code = f"""{FORK}
x = torch.rand(64, 64, device="xla") ; y = torch.rand(64, 64, device="xla")
(x + 1).sum().item()
pending = x + 1
z = x
for i in range(300):
    z = torch.tanh(y @ z) + i
thread = threading.Thread(target=lambda: z.sum().item())
compiles = torch_pjrt.metrics.counters().get("CompileCacheMiss", 0)
thread.start()
while torch_pjrt.metrics.counters().get("CompileCacheMiss", 0) == compiles:
    time.sleep(0.001)  # until it holds what a sync holds
assert thread.is_alive()
for f in (lambda: print(x + 1), pending.tolist, torch_pjrt.sync, torch_pjrt.wait,
          lambda: (x + 1).cpu(), torch_pjrt.explain, lambda: torch_pjrt.graph.of(pending),
          torch_pjrt.graph.last, torch_pjrt.memory, lambda: x.to("cpu"), lambda: x.resize_(3)[0],
          lambda: torch.xla.synchronize(), lambda: os._exit(7)):
    print(child_says(f).split(":")[0])
thread.join()
print(pending.shape == (64, 64), z.isfinite().all().item())
"""
    done = run_python(code=code)
    *said, last = done.stdout.splitlines()
    assert "it hangs" not in said, done.stdout + done.stderr
    assert said[:2] == ["RuntimeError"] * 2, done.stdout + done.stderr
    assert last == "True True", done.stdout + done.stderr


def test_child_forked_beside_threads_that_record_can_record(run_python):
    code = f"""{FORK}
stop = False
def record(k):
    n = 0
    while not stop:  # new types, new lines and scopes, counters
        n += 1
        line = f"torch.empty({{n}}, {{k}}, device='xla') + {{n}}"
        exec(compile(line, f"file{{k}}_{{n}}.py", "exec"))
threads = [threading.Thread(target=record, args=(k,)) for k in range(3)]
for t in threads: t.start()
made = lambda i: (torch.empty(7, i, 9, device="xla") + 1).shape[1] == i
said = {{child_says(lambda: made(i)) for i in range(40)}}
stop = True
for t in threads: t.join()
print(said)
"""
    done = run_python(code=code)
    assert done.stdout == "{'True'}\n", done.stdout + done.stderr


def test_fork_beside_the_start_of_the_device_gives_a_child_that_is_told(run_python, fake):
    env = fake_env(fake) | {"TORCH_PJRT_FAKE_SCRIPT": "client:1=HANG 3000"}
    code = f"""{FORK}
x = torch.ones(3, device="xla")
thread = threading.Thread(target=lambda: (x + 1).tolist())
thread.start()
while not ctypes.CDLL(os.environ["FAKE"]).fake_plugin_count(b"client"):
    time.sleep(0.01)  # until it is in the plugin
for f in (lambda: (x + 1).tolist(), torch_pjrt.sync, lambda: torch.xla.device_count()):
    print(child_says(f, 2).split(":")[0])
thread.join()
print((x + 1).shape)
"""
    done = run_python(code=code, **env)
    assert done.stdout == "RuntimeError\n" * 3 + "torch.Size([3])\n", done.stdout + done.stderr


def test_dataloader_workers_feed_a_device_in_use(device):
    x = torch.arange(24.0).reshape(12, 2)
    assert (torch.ones(2).to(device) + 1).tolist() == [2.0, 2.0]  # the client has started
    loader = DataLoader(TensorDataset(x), batch_size=3, num_workers=2)
    for _epoch in range(2):
        total = torch.zeros(2).to(device)
        for (batch,) in loader:
            total += batch.to(device).sum(0)
        assert total.tolist() == x.sum(0).tolist()
