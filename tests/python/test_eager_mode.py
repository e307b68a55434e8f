"""Eager mode: a cut after every op, through the same programs' cache, with lazy mode's numbers."""

import threading

import pytest
import torch
import torch.nn.functional as F
from loops import OPTIMIZERS, Loop
from torch import nn

import torch_pjrt


def test_every_op_is_on_the_device_when_it_returns(device):
    x = torch.rand(4, 3, device=device)
    with torch_pjrt.eager_mode(True):
        y = x + 1
        assert torch_pjrt.state(y) == "device"
        y.mul_(2)
        assert torch_pjrt.state(y) == "device"
        mean, index = y.max(0)
        assert torch_pjrt.state(mean) == torch_pjrt.state(index) == "device"
        z = torch.zeros(3, device=device)
        assert torch_pjrt.state(z) == "device"
        assert torch_pjrt.state(y.clone()) == torch_pjrt.state(y.to(torch.float64)) == "device"
        out = torch.empty(4, 3, device=device)
        torch.sin(y, out=out)
        assert torch_pjrt.state(out) == "device"
    assert torch_pjrt.state(y + 1) == "ir"


def test_an_op_is_one_program_that_is_found_again(device, compiles):
    x = torch.rand(5, 11, device=device)
    torch_pjrt.sync()
    with torch_pjrt.eager_mode():
        with compiles() as first:
            y = x
            for _ in range(6):
                y = torch.tanh(y)
        with compiles() as later:
            for _ in range(6):
                y = torch.tanh(y)
    assert (first.count, later.count) == (1, 0)
    assert first.cuts == later.cuts == 0


def test_views_run_nothing_and_write_through(device):
    x = torch.zeros(4, 4, device=device)
    with torch_pjrt.eager_mode():
        row = x[1]
        before = torch_pjrt.metrics.counters().get("EagerOp", 0)
        row.t()
        x.view(16)
        assert torch_pjrt.metrics.counters().get("EagerOp", 0) == before
        row.fill_(3)
        x[:, 2] += 1
    assert x.cpu().tolist() == [[0, 0, 1, 0], [3, 3, 4, 3], [0, 0, 1, 0], [0, 0, 1, 0]]


def forward(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    """Some of everything: products, normalization, softmax, random numbers."""
    h = F.layer_norm(x @ w, (6,))
    p = torch.softmax(h, 1)
    return [h, p, torch.rand_like(p), F.dropout(p, 0.3), torch.randn(3, device=x.device)]


def test_results_and_random_numbers_are_lazy_modes(device):
    torch.manual_seed(1)
    x, w = torch.randn(5, 4).to(device), torch.randn(4, 6).to(device)
    torch.manual_seed(7)
    lazy = [t.cpu() for t in forward(x, w)]
    torch.manual_seed(7)
    with torch_pjrt.eager_mode():
        eager = [t.cpu() for t in forward(x, w)]
    for a, b in zip(lazy[2:3] + lazy[4:], eager[2:3] + eager[4:], strict=True):
        assert torch.equal(a, b)  # random numbers: to the last bit
    assert torch.equal(lazy[3] == 0, eager[3] == 0)
    for a, b in zip(lazy, eager, strict=True):
        torch.testing.assert_close(
            a, b, rtol=1e-6, atol=1e-7
        )  # XLA contracts a * b + c in a fusion


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_training_trains_alike(device, name):
    lazy = Loop(device, OPTIMIZERS[name], 41)
    a = [lazy.step().item() for _ in range(4)]
    with torch_pjrt.eager_mode():
        eager = Loop(device, OPTIMIZERS[name], 41)
        b = [eager.step().item() for _ in range(4)]
    assert a == pytest.approx(b, rel=1e-5)


def test_running_statistics_are_written_at_once(device):
    norm = nn.BatchNorm1d(3).to(device)
    with torch_pjrt.eager_mode():
        norm(torch.ones(4, 3, device=device) * 2)
        assert torch_pjrt.state(norm.running_mean) == "device"
    assert norm.running_mean.tolist() == pytest.approx([0.2] * 3)


def test_switching_on_runs_what_is_pending(device):
    x = torch.ones(3, device=device)
    y = x + 1
    with torch_pjrt.eager_mode():
        assert torch_pjrt.state(y) == "device"
        y.add_(1)
    z = y * 2
    with torch_pjrt.eager_mode(False):
        assert torch_pjrt.state(z) == "ir"
    assert z.tolist() == [6.0] * 3


def test_switching_in_the_middle_of_a_backward_pass(device):
    p = nn.Parameter(torch.ones(3, device=device))
    loss = (p * p).sum()
    with torch_pjrt.eager_mode():
        loss.backward()
        assert torch_pjrt.state(p.grad) == "device"
    assert p.grad.tolist() == [2.0] * 3


def test_mode_is_a_switch_and_a_context_and_nests(device):
    assert torch_pjrt.eager_mode(True) is not None
    try:
        assert torch_pjrt._C.eager_mode()
        with torch_pjrt.eager_mode(False):
            assert not torch_pjrt._C.eager_mode()
            with torch_pjrt.eager_mode():
                assert torch_pjrt._C.eager_mode()
        assert torch_pjrt._C.eager_mode()
    finally:
        torch_pjrt.eager_mode(False)
    assert not torch_pjrt._C.eager_mode()


def test_op_that_fails_raises_at_its_line_and_leaves_the_mode_working(device):
    x = torch.ones(3, device=device)
    with torch_pjrt.eager_mode():
        with pytest.raises(RuntimeError, match="size of tensor"):
            x + torch.ones(4, device=device)
        assert (x + 1).tolist() == [2.0] * 3


def test_threads_may_switch_while_others_record(device):
    x = torch.arange(8.0).to(device)
    wrong: list[object] = []

    def work() -> None:
        try:
            for i in range(60):
                y = (x + i) * 2
                if y.tolist() != [(v + i) * 2 for v in range(8)]:
                    wrong.append(i)
        except Exception as e:
            wrong.append(e)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for _ in range(20):
        with torch_pjrt.eager_mode():
            x * 3
    for t in threads:
        t.join()
    assert wrong == []


def test_an_out_tensor_of_another_layout_is_on_the_device(device):
    x, y = torch.rand(4, 3, device=device).t(), torch.rand(4, 3, device=device).t()
    out = torch.empty(0, device=device)
    with torch_pjrt.eager_mode():
        torch.add(x, y, out=out)
        assert torch_pjrt.state(out) == "device"
    want = torch.add(x.cpu(), y.cpu(), out=torch.empty(0))
    assert out.stride() == want.stride()
    torch.testing.assert_close(out.cpu(), want)


def test_a_tensor_whose_op_failed_is_still_the_input_that_it_was_made_as(run_fake):
    """Not a constant of the program: that would be another one."""
    said = run_fake("""
misses = lambda: torch_pjrt.metrics.counters()["CompileCacheMiss"]
with torch_pjrt.eager_mode():
    for script_text in ("", "execute:1=INTERNAL queue is gone"):
        z = torch.empty(5, device="xla")
        script(script_text)
        print(attempt(lambda: z.add_(1).shape))
    before = misses()
    print(z.tolist(), misses() - before)
""")
    first, *_, last = said.splitlines()
    assert first == "torch.Size([5])", said
    assert "queue is gone" in said
    assert last == "[0.0, 0.0, 0.0, 0.0, 0.0] 0", said


def test_one_failure_does_not_make_the_ops_that_follow_slow(run_fake):
    said = run_fake("""
with torch_pjrt.eager_mode():
    y = a.sin()
    script("event:1=INTERNAL lost a chip")
    y = a.sin()
    print(attempt(y.tolist))
    script("")
    print(y.tolist())
    before = torch_pjrt.metrics.counters()["CompileCacheHit"]
    for _ in range(50):
        a.sin()
    print("hits", torch_pjrt.metrics.counters()["CompileCacheHit"] - before)
""")
    assert "lost a chip" in said
    assert "hits 0" in said, said  # an op that is known asks no cache
