"""Recording goes on while programs run; a read waits for what it reads and for nothing else."""

import time

import torch

import torch_pjrt


def heavy(x: torch.Tensor, rounds: int = 24) -> torch.Tensor:
    """Work for some tenths of a second in one program."""
    for _ in range(rounds):
        x = torch.tanh(x @ x)
    return x


def timed(f) -> float:
    """Seconds that f takes."""
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def start_heavy(x: torch.Tensor) -> torch.Tensor:
    """Launches heavy work, its program known already."""
    out = heavy(x)
    torch_pjrt.sync()
    return out


def test_sync_returns_before_its_program_ends(device):
    x = torch.rand(700, 700).to(device) / 700
    torch_pjrt.sync(wait=True)
    start_heavy(x)
    torch_pjrt.wait()
    start = time.perf_counter()
    out = start_heavy(x)
    launched = time.perf_counter() - start
    torch_pjrt.wait()
    done = time.perf_counter() - start
    assert launched < done / 4, (launched, done)
    del out


def test_read_waits_only_for_what_it_reads(device):
    x = torch.rand(700, 700).to(device) / 700
    torch_pjrt.sync(wait=True)
    small = torch.arange(3.0).to(device) + 1
    start_heavy(x)
    torch_pjrt.wait()
    full = timed(lambda: (start_heavy(x), torch_pjrt.wait()))
    out = start_heavy(x)
    assert timed(lambda: small.tolist()) < full / 4
    assert timed(torch_pjrt.wait) > full / 8  # it was still running
    del out


def test_recording_goes_on_while_a_program_runs(device):
    x = torch.rand(700, 700).to(device) / 700
    torch_pjrt.sync(wait=True)
    start_heavy(x)
    torch_pjrt.wait()
    out = start_heavy(x)
    spent = timed(lambda: heavy(x))
    running = timed(torch_pjrt.wait)
    assert spent < running, (spent, running)
    del out


def test_wait_waits_for_everything_launched(device):
    x = torch.rand(500, 500).to(device) / 500
    torch_pjrt.sync(wait=True)
    outs = [start_heavy(x) for _ in range(3)]
    torch_pjrt.wait()
    assert min(timed(torch_pjrt.wait) for _ in range(3)) < 0.01
    for o in outs:
        assert timed(lambda o=o: o[0, 0].item()) < 0.05


def test_depth_of_the_queue_is_bounded_by_its_flag(run_python):
    code = """
import time, torch, torch_pjrt
x = (torch.rand(500, 500) / 500).to("xla")
def step():
    y = x
    for _ in range(12):
        y = torch.tanh(y @ y)
    torch_pjrt.sync()
    return y
step(); torch_pjrt.wait()
start = time.perf_counter()
for _ in range(8):
    step()
spent = time.perf_counter() - start
torch_pjrt.wait()
total = time.perf_counter() - start
print("bounded" if spent > total / 2 else f"not: launched in {spent} of {total}")
"""
    done = run_python(code=code, TORCH_PJRT_IN_FLIGHT="1")
    assert "bounded" in done.stdout, done.stdout + done.stderr


def test_scalar_on_the_device_is_read_without_a_copy(device):
    x = torch.rand(8, 8).to(device).sum()
    torch_pjrt.sync(wait=True)
    before = torch_pjrt.metrics.timers().get("TransferFromDevice", (0, 0.0))[0]
    for _ in range(5):
        x.item()
    assert torch_pjrt.metrics.timers().get("TransferFromDevice", (0, 0.0))[0] == before
    assert min(timed(x.item) for _ in range(200)) < 15e-6
