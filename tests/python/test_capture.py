"""torch_pjrt.capture: a step replayed without its Python gives what the step gives."""

import functools
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_pjrt
from torch_pjrt import _C, metrics


def counter(name):
    return metrics.counters().get(name, 0)


def training(wrap, steps, dropout=0.2, optimizer=torch.optim.AdamW):
    """Losses and weights of a small model's steps."""
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 3)).double()
    data = [(torch.randn(8, 6).double(), torch.randint(0, 3, (8,))) for _ in range(steps)]
    m = m.to("xla")
    opt = optimizer(m.parameters(), lr=1e-2)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        return loss

    run = wrap(step)
    torch.manual_seed(1)
    losses = []
    for x, y in data:
        losses.append(run(x.to("xla"), y.to("xla")))
        torch_pjrt.sync()
    return [v.item() for v in losses], [p.detach().cpu() for p in m.parameters()], m


def fused(params, lr):
    return torch.optim.AdamW(params, lr=lr, fused=True)


def capturable(params, lr):
    return torch.optim.Adam(params, lr=lr, capturable=True)


def momentum(params, lr):
    return torch.optim.SGD(params, lr=lr, momentum=0.9)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, momentum, fused, capturable])
def test_a_captured_training_step_is_the_step(optimizer):
    plain = training(lambda s: s, 8, optimizer=optimizer)
    replays = counter("CapturedReplay")
    ours = training(torch_pjrt.capture, 8, optimizer=optimizer)
    assert counter("CapturedReplay") == replays + 5
    assert ours[0] == pytest.approx(plain[0], rel=1e-9)
    for a, b in zip(plain[1], ours[1], strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-12)


def test_an_optimizer_that_counts_in_python_is_told_what_to_do():
    with pytest.raises(RuntimeError, match="fused=True or capturable=True"):
        training(torch_pjrt.capture, 4, optimizer=torch.optim.AdamW)


def test_a_replay_runs_no_python_and_compiles_nothing():
    ran = []
    w = torch.ones(3, device="xla")

    @torch_pjrt.capture
    def step(x):
        ran.append(1)
        w.add_(x)
        return w.sum()

    x = torch.ones(3, device="xla")
    out = [step(x) for _ in range(6)]
    assert len(ran) == 3  # usual, captured, checked
    assert [v.item() for v in out] == [6, 9, 12, 15, 18, 21]
    compiled = metrics.compiles()
    step(x)
    assert metrics.compiles() == compiled
    assert w.tolist() == [8] * 3


def test_results_of_two_replays_are_two_tensors():
    w = torch.zeros(2, device="xla")

    @torch_pjrt.capture
    def step():
        w.add_(1)
        return w * 2

    kept = [step() for _ in range(5)]
    assert [k.tolist() for k in kept] == [[2.0 * i] * 2 for i in range(1, 6)]


def test_replays_draw_new_numbers_and_the_steps_own():
    def draws(wrap):
        f = wrap(lambda x: x + torch.rand_like(x))
        torch.manual_seed(7)
        return [f(torch.zeros(4, device="xla")).cpu() for _ in range(6)]

    plain, ours = draws(lambda f: f), draws(torch_pjrt.capture)
    assert all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))
    assert not torch.equal(ours[4], ours[5])


def test_gradients_stay_with_their_parameters():
    p = nn.Parameter(torch.ones(2, device="xla"))

    @torch_pjrt.capture
    def step(x):
        p.grad = None
        (p * x).sum().backward()

    for k in range(1, 7):
        step(torch.full((2,), float(k), device="xla"))
        assert p.grad.tolist() == [k, k]


def test_updates_are_made_in_place():
    w = torch.ones(4096, device="xla")

    @torch_pjrt.capture
    def step():
        w.mul_(2)

    for _ in range(4):
        step()
    before = counter("DonatedBuffers")
    step()
    torch_pjrt.wait()
    assert counter("DonatedBuffers") == before + 1


def test_a_value_held_elsewhere_keeps_its_bytes():
    w = torch.ones(3, device="xla")

    @torch_pjrt.capture
    def step():
        w.add_(1)

    for _ in range(3):
        step()
    old = w.clone()
    torch_pjrt.sync()
    step()
    assert (old.tolist(), w.tolist()) == ([4] * 3, [5] * 3)


def test_a_write_between_replays_is_seen():
    w = torch.zeros(2, device="xla")

    @torch_pjrt.capture
    def step():
        w.add_(1)

    for _ in range(4):
        step()
    w.fill_(10)
    step()
    assert w.tolist() == [11, 11]


def test_another_shape_is_captured_anew():
    f = torch_pjrt.capture(lambda x: x.sum() * 2)
    for n in (2, 2, 2, 2, 3, 3, 2):
        assert f(torch.ones(n, device="xla")).item() == 2 * n


def test_a_step_that_reads_a_value_is_refused_at_its_line():
    @torch_pjrt.capture
    def step(x):
        return x * x.sum().item()

    x = torch.ones(2, device="xla")
    step(x)
    with pytest.raises(RuntimeError, match=r"^capture: item .* test_capture\.py") as e:
        step(x)
    assert "return the tensor from the step" in str(e.value)
    assert (x + 1).tolist() == [2, 2]
    torch_pjrt.capture(lambda: None)


def test_a_number_that_changed_is_told():
    rate = [1.0]
    w = torch.zeros(2, device="xla")

    def step():
        w.add_(torch.ones(2, device="xla") * 3, alpha=rate[0])

    f = torch_pjrt.capture(step, check_every=5)
    for _ in range(4):
        f()
    rate[0] = 2.0
    with pytest.raises(RuntimeError, match=r"a number .* was 1 and is 2"):
        f()
    g = torch_pjrt.capture(step, check_every=5, on_change="recapture")
    for k in range(9):
        rate[0] = 1.0 if k < 4 else 5.0
        w.zero_()
        g()
    assert w.tolist() == [15, 15]


def test_a_change_names_the_step_without_its_arguments():
    rate = [1.0]
    w = torch.zeros(2, device="xla")

    def step(x):
        w.add_(x * 3, alpha=rate[0])

    f = torch_pjrt.capture(functools.partial(step, torch.ones(2, device="xla")), check_every=4)
    for _ in range(3):
        f()
    rate[0] = 2.0
    with pytest.raises(RuntimeError, match=r"the captured step \S*step changed: a number"):
        f()


def test_a_learning_rate_that_is_a_tensor_may_change():
    p = nn.Parameter(torch.zeros(1, device="xla"))
    lr = torch.tensor(1.0, device="xla")
    opt = torch.optim.SGD([p], lr=lr, fused=True)

    @torch_pjrt.capture
    def step():
        opt.zero_grad()
        p.sum().backward()
        opt.step()

    for k in range(6):
        lr.fill_(float(k))
        step()
    assert p.item() == -15


def test_a_tensor_that_is_gone_is_told():
    held = [torch.ones(2, device="xla")]
    f = torch_pjrt.capture(lambda: held[0] + 1)
    for _ in range(4):
        f()
    held[0] = torch.ones(2, device="xla")
    with pytest.raises(RuntimeError, match="is gone"):
        f()
    f.reset()
    assert f().tolist() == [2, 2]


def test_results_that_are_numbers_and_none_come_back():
    f = torch_pjrt.capture(lambda x: {"y": x + 1, "n": 3, "none": None})
    for _ in range(5):
        out = f(torch.zeros(1, device="xla"))
        assert (out["y"].item(), out["n"], out["none"]) == (1, 3, None)


def test_nothing_is_left_of_many_replays():
    w = torch.zeros(2, device="xla")
    f = torch_pjrt.capture(lambda: w.add_(1), check_every=10**9)
    for _ in range(4):
        f()
    gc.collect()  # what other tests left behind
    live = _C.live_aliases()
    for _ in range(2000):
        f()
    assert _C.live_aliases() == live
    assert w[0].item() == 2004


def test_another_answer_to_changes_is_refused():
    with pytest.raises(ValueError, match="recapture"):
        torch_pjrt.capture(lambda: None, on_change="ignore")


# ---- torch_pjrt.compile -----------------------------------------------------------------------


def test_compile_makes_one_program_of_a_call():
    w = torch.ones(3, device="xla")

    @torch_pjrt.compile
    def step(x):
        w.mul_(x)
        return w + 1

    x = torch.full((3,), 2.0, device="xla")
    step(x)
    step(x)
    before, syncs = metrics.compiles(), counter("Sync")
    out = step(x)
    assert torch_pjrt.state(out) == "device"
    assert metrics.compiles() == before
    assert counter("Sync") == syncs + 2
    assert out.tolist() == [9] * 3


def test_compile_of_a_full_graph_refuses_a_read_at_its_line():
    @torch_pjrt.compile(full_graph=True)
    def step(x):
        return x * x.sum().item()

    with pytest.raises(RuntimeError, match=r"test_capture\.py"):
        step(torch.ones(2, device="xla"))
    assert torch_pjrt.compile(lambda x: x.sum().item())(torch.ones(2, device="xla")) == 2


def refused(call):
    with pytest.raises(RuntimeError, match="max_different_graphs") as e:
        call()
    return str(e.value)


def test_more_different_graphs_than_allowed_are_refused_with_the_lines_and_not_compiled():
    def step(x, negative=False):
        return -x * 2 if negative else x * 2

    first = torch_pjrt.compile(step, max_different_graphs=1)
    x, longer = torch.ones(3).to("xla"), torch.ones(5).to("xla")
    assert first(x).tolist() == first(x + 1 - 1).tolist() == [2] * 3
    compiled = metrics.compiles()
    said = refused(lambda: first(longer))
    assert "of 'step' is 1, and another graph came: arg 0 f32[3] -> f32[5]" in said
    assert metrics.compiles() == compiled
    assert "test_capture.py" in said and "pad to a few sizes" in said
    assert "new op aten.neg" in refused(lambda: first(x, negative=True))
    assert first(x).tolist() == [2] * 3  # and it goes on


def test_what_a_refused_call_recorded_is_not_lost():
    w = torch.zeros(3).to("xla")
    torch_pjrt.sync()
    add = torch_pjrt.compile(lambda x: w.add_(x.sum()), max_different_graphs=1)
    add(torch.ones(2).to("xla"))
    refused(lambda: add(torch.ones(4).to("xla")))
    assert w.tolist() == [6] * 3


def test_other_numbers_are_the_same_graph_and_a_read_makes_two_of_a_call():
    part = torch_pjrt.compile(lambda x, i: x[i : i + 2] * i, max_different_graphs=1)
    x = torch.arange(8.0).to("xla")
    assert [part(x, i).tolist() for i in range(4)] == [[0, 0], [1, 2], [4, 6], [9, 12]]

    def reads(x):
        return x * 2 if x.sum().item() > 0 else x

    refused(lambda: torch_pjrt.compile(reads, max_different_graphs=1)(x))
    assert torch_pjrt.compile(reads, max_different_graphs=2)(x)[1].item() == 2


def test_the_graphs_of_a_function_are_counted_in_all_wrappers_and_threads():
    def step(x):
        return x + 1

    one, two = torch.ones(2).to("xla"), torch.ones(2, 2).to("xla")
    torch_pjrt.compile(step, max_different_graphs=1)(one)
    refused(lambda: torch_pjrt.compile(step, max_different_graphs=1)(two))
    torch_pjrt.compile(step, max_different_graphs=2)(two)
    run = torch_pjrt.compile(step, max_different_graphs=2)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(run, one).result()
        refused(lambda: pool.submit(run, torch.ones(7).to("xla")).result())
        # the thread itself is under no limit outside of the call
        assert pool.submit(lambda: (torch.ones(9).to("xla") * 3).tolist()).result() == [3] * 9


def test_a_limit_below_one_graph_is_refused():
    with pytest.raises(ValueError, match="expected 1 or more, found 0"):
        torch_pjrt.compile(lambda x: x, max_different_graphs=0)


@pytest.mark.programs
@pytest.mark.parametrize(
    "halfway",
    [torch_pjrt.sync, lambda: torch.xla.Event().record(), lambda: torch_pjrt.sync(wait=True)],
    ids=["sync", "an event's record", "sync and wait"],
)
def test_what_launches_in_the_middle_of_a_step_does_not_split_it(halfway):
    def trained(captured):
        torch.manual_seed(0)
        w = torch.randn(4, 4).to("xla")
        total = torch.zeros(4, 4).to("xla")

        def step(x):
            total.add_(w @ x)
            halfway()
            w.mul_(0.5).add_(total)
            return w.sum()

        run = torch_pjrt.capture(step) if captured else step
        for i in range(7):
            run(torch.full((4, 4), float(i)).to("xla"))
        return w.cpu(), total.cpu()

    for a, b in zip(trained(True), trained(False), strict=True):
        assert torch.equal(a, b)
