"""An optimizer step updates in place in device memory; holders of an old value still read it."""

import threading

import pytest
import torch
from loops import OPTIMIZERS, Loop
from torch import nn

import torch_pjrt

pytestmark = pytest.mark.programs  # interpreted graphs overwrite no buffer


def donated() -> int:
    """Buffers given to programs so far."""
    return torch_pjrt.metrics.counters().get("DonatedBuffers", 0)


def step(w: torch.Tensor) -> None:
    """Overwrites w by what it was and runs that."""
    w.mul_(2).add_(1)
    torch_pjrt.sync()


@pytest.fixture
def w(device) -> torch.Tensor:
    """A tensor on the device, 0..5, whose buffer nobody else has."""
    made = torch.arange(6.0).to(device) + 0
    torch_pjrt.sync(wait=True)
    return made


AFTER = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
BEFORE = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_overwritten_tensor_gives_its_buffer(w):
    before = donated()
    step(w)
    assert donated() == before + 1
    assert w.tolist() == AFTER


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw"])
def test_every_weight_and_state_is_updated_in_place_from_step_one_on(device, compiles, name):
    loop = Loop(device, OPTIMIZERS[name], 37)
    torch_pjrt.sync(wait=True)
    given = []
    with compiles() as seen:
        for _ in range(3):
            before = donated()
            loop.step()
            torch_pjrt.sync()
            given.append(donated() - before)
    state = sum(
        t.numel() > 1 for s in loop.optimizer.state.values() for t in s.values() if t is not None
    )
    assert given == [4 + state] * 3
    assert seen.count == 1


def test_training_in_place_takes_no_new_memory(device):
    model = nn.Linear(512, 512).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(4, 512).to(device)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            torch_pjrt.sync(wait=True)

    train(2)
    before = torch_pjrt.memory()
    torch.xla.reset_peak_memory_stats()
    train(3)
    after = torch_pjrt.memory()
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert after["live_bytes"] == before["live_bytes"]
    assert after["donated_bytes"] - before["donated_bytes"] == 3 * 3 * weights
    # New in a step: the gradients, and the step's few numbers.
    assert after["peak_live_bytes"] - before["live_bytes"] < 1.1 * weights


def test_read_never_donates(w):
    before = donated()
    w.mul_(2)
    assert w.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert donated() == before


def test_donation_can_be_switched_off(run_python):
    code = """
import torch, torch_pjrt
w = torch.arange(3.0).to("xla") + 0
torch_pjrt.sync()
w.add_(1)
torch_pjrt.sync()
print(w.tolist(), torch_pjrt.metrics.counters().get("DonatedBuffers", 0))
"""
    done = run_python(code=code, TORCH_PJRT_DONATION="0")
    assert done.stdout.split("\n")[0] == "[1.0, 2.0, 3.0] 0", done.stderr


# ---- who holds an old value ------------------------------------------------------------------


def test_clone_keeps_its_value(w):
    old = w.clone()
    step(w)
    assert (old.tolist(), w.tolist()) == (BEFORE, AFTER)


def test_copy_that_shares_the_buffer_keeps_its_value(w):
    old = torch.empty_like(w).copy_(w)
    torch_pjrt.sync()
    step(w)
    assert (old.tolist(), w.tolist()) == (BEFORE, AFTER)


def test_result_that_was_not_run_yet_keeps_what_it_needs(w):
    double = w * 2
    step(w)
    assert double.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_views_and_detached_aliases_read_the_new_value_as_eager_does(w):
    row, shared, data = w.view(2, 3)[1], w.detach(), w.data
    step(w)
    assert row.tolist() == AFTER[3:]
    assert shared.tolist() == data.tolist() == AFTER


def test_view_that_outlives_its_base(w):
    row = w.view(2, 3)[1]
    step(w)
    del w
    torch_pjrt.sync()
    assert row.tolist() == AFTER[3:]


def test_write_through_a_view_updates_the_base_in_place(w):
    before = donated()
    w[2] = 9
    torch_pjrt.sync()
    assert donated() == before + 1
    assert w.tolist() == [0.0, 1.0, 9.0, 3.0, 4.0, 5.0]


def test_captured_list_of_old_values_stays_readable(w):
    history = []
    for _ in range(3):
        history.append(w.clone())
        step(w)
    assert [h[1].item() for h in history] == [1.0, 3.0, 7.0]


def test_gradient_accumulators_and_what_was_read_of_them(device):
    p = nn.Parameter(torch.ones(3, device=device))
    seen = []
    for _ in range(3):
        (p * 2).sum().backward()
        seen.append(p.grad.clone())
        torch_pjrt.sync()
    assert [s.tolist() for s in seen] == [[2.0] * 3, [4.0] * 3, [6.0] * 3]
    assert p.grad.tolist() == [6.0] * 3


def test_tensor_saved_for_backward_is_not_overwritten(w):
    x = w.clone().requires_grad_()
    y = (x * x).sum()
    torch_pjrt.sync()
    with torch.no_grad():
        w.add_(1)
    torch_pjrt.sync()
    y.backward()
    assert x.grad.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_swapped_values_both_survive(device):
    a, b = torch.zeros(3, device=device) + 1, torch.zeros(3, device=device) + 2
    torch_pjrt.sync()
    for _ in range(3):
        old = a.clone()
        a.copy_(b)
        b.copy_(old)
        torch_pjrt.sync()
    assert (a.tolist(), b.tolist()) == ([2.0] * 3, [1.0] * 3)


def test_numpy_array_of_an_old_value_does_not_change(w):
    old = w.cpu().numpy()
    step(w)
    torch_pjrt.wait()
    assert old.tolist() == BEFORE


def test_uploaded_tensor_is_updated_and_its_source_is_not(device):
    source = torch.zeros(64, 64)
    w = source.to(device)
    for _ in range(2):
        w.add_(1)
        torch_pjrt.sync(wait=True)
    assert w.sum().item() == 2 * 64 * 64
    assert source.sum().item() == 0


def test_readers_in_other_threads_see_whole_values(device):
    w = torch.zeros(4096, device=device)
    torch_pjrt.sync(wait=True)
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                seen = (w * 1).cpu()
                if seen.min() != seen.max():
                    wrong.append(seen)
        except Exception as e:
            wrong.append(e)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for r in readers:
        r.start()
    for _ in range(200):
        w.add_(1)
        torch_pjrt.sync()
    stop.set()
    for r in readers:
        r.join()
    assert wrong == []
    assert w[0].item() == 200


# ---- memory ----------------------------------------------------------------------------------


def test_memory_tells_live_peak_and_donated_bytes(device):
    torch_pjrt.sync(wait=True)
    torch.xla.reset_peak_memory_stats()
    before = torch_pjrt.memory()
    x = torch.ones(256, 1024).to(device)  # 1 MiB
    y = x + 1
    torch_pjrt.sync(wait=True)
    del y
    after = torch.xla.memory_stats()
    assert after["live_bytes"] - before["live_bytes"] == 1 << 20
    assert after["peak_live_bytes"] - before["live_bytes"] >= 2 << 20
    x.add_(1)
    torch_pjrt.sync(wait=True)
    assert torch_pjrt.memory()["donated_bytes"] - after["donated_bytes"] == 1 << 20
    assert torch.xla.memory_allocated() == torch_pjrt.memory()["live_bytes"]
    assert torch.xla.max_memory_allocated() == torch_pjrt.memory()["peak_live_bytes"]


def test_program_with_a_host_op_gives_nothing_away(w, device):
    # Such an op may raise in the middle of the program: in eager mode no tensor pays for that.
    a = torch.eye(3).to(device)
    before = donated()
    with torch_pjrt.no_cuts():  # its check stays in the program
        w.mul_(torch.linalg.svdvals(a).sum())
    torch_pjrt.sync()
    assert donated() == before
    assert w.tolist() == pytest.approx([3.0 * v for v in BEFORE])


# ---- stored programs, many parameters --------------------------------------------------------


def test_program_from_the_disk_cache_updates_in_place_too(run_python, tmp_path):
    code = """
import torch, torch_pjrt
w = torch.arange(6.0).to("xla") + 0
torch_pjrt.sync(wait=True)
for _ in range(2):
    w.mul_(2).add_(1)
    torch_pjrt.sync()
count = torch_pjrt.metrics.counters()
print(w.tolist(), count.get("DonatedBuffers"), torch_pjrt.metrics.compiles())
"""
    env = {"TORCH_PJRT_CACHE": str(tmp_path / "cache")}
    first, second = (run_python(code=code, **env).stdout.split("\n")[0] for _ in range(2))
    assert first == "[3.0, 7.0, 11.0, 15.0, 19.0, 23.0] 2 2"
    assert second == "[3.0, 7.0, 11.0, 15.0, 19.0, 23.0] 2 0"


def test_program_of_more_than_3200_parameters_runs_and_donates(device):
    hosts = [torch.full((2,), float(i)) for i in range(3300)]
    parts = [h.to(device) for h in hosts]
    w = torch.arange(2.0).to(device) + 0
    torch_pjrt.sync(wait=True)
    before = donated()
    total = torch.cat(parts)
    w.add_(total[-2:])
    torch_pjrt.sync()
    assert torch.equal(total.cpu(), torch.cat(hosts))
    assert w.tolist() == [3299.0, 3300.0]
    assert donated() == before + 1
