"""torch.compile on device xla: eager's values, one program, arguments as they should be."""

import gc

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import torch_pjrt
from torch_pjrt import _C, _compile, metrics

D = "xla"
FAKE_TENSOR_COMPARES = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch_pjrt.sync()


def compiled(f, **kw):
    return torch.compile(f, backend="openxla", **kw)


def counter(name):
    return metrics.counters().get(name, 0)


def test_passed_through_doubled_and_none_results():
    def g(a, b):
        y = a * b
        return a, y, None, y, 3

    f, a = compiled(g), torch.arange(3.0, device=D)
    for k in (1, 2):
        r = f(a, a + k)
        torch_pjrt.sync()
        assert r[0] is a
        assert r[1] is r[3]
        assert r[2] is None
        assert r[4] == 3
        assert r[1].tolist() == [0, 1 + k, 4 + 2 * k]


def test_views_of_arguments_and_of_results():
    f = compiled(lambda a: (a.t(), a[0], (a * 2).t()))
    a = torch.arange(6.0, device=D).view(2, 3)
    v, r, w = f(a)
    v.mul_(10)
    r.add_(1)
    torch_pjrt.sync()
    assert a.tolist() == [[1, 11, 21], [30, 40, 50]]
    assert w.stride() == (1, 3)


def test_an_argument_that_is_a_view_is_written():
    def g(v):
        v.mul_(3)
        return v.sum()

    f, b = compiled(g), torch.arange(12.0, device=D).view(3, 4)
    x = f(b[1])
    y = f(b[:, 2])
    torch_pjrt.sync()
    assert (x.item(), y.item()) == (66.0, 90.0)
    assert b[1].tolist() == [12, 15, 54, 21]


def test_two_arguments_of_one_memory():
    def g(a, b):
        a.add_(1)
        return b * 2

    f, b = compiled(g), torch.arange(4.0, device=D)
    r = f(b[:2], b[1:3])
    torch_pjrt.sync()
    assert r.tolist() == [4, 4]
    assert b.tolist() == [1, 2, 2, 3]


def test_a_cache_that_is_written_in_place():
    def g(c, p, x):
        c[:, p] = x
        return c.sum(1)

    f, c = compiled(g), torch.zeros(1, 4, 2, device=D)
    for p in range(4):
        y = f(c, torch.tensor(p, device=D), torch.full((1, 2), p + 1.0, device=D))
    torch_pjrt.sync()
    assert y.tolist() == [[10, 10]]
    assert c[0, :, 0].tolist() == [1, 2, 3, 4]


def test_numbers_that_change_compile_nothing():
    f, x = compiled(lambda x, a, t: x * a + t), torch.ones(2, device=D)
    programs = []
    for i in range(4):
        y = f(x, i * 0.5, torch.tensor(float(i)))
        torch_pjrt.sync()
        programs.append(metrics.compiles())
        assert y.tolist() == [i * 1.5] * 2
    assert programs[2] == programs[3]


def test_a_device_that_is_written_out():
    f = torch.compile(lambda x: x + torch.ones(3, device=D), backend="openxla", fullgraph=True)
    assert f(torch.ones(3, device=D)).tolist() == [2, 2, 2]


def test_the_same_seed_draws_what_uncompiled_code_draws():
    def g(x):
        return F.dropout(x, 0.5), torch.rand_like(x)

    f, x = compiled(g), torch.ones(64, device=D)
    f(x)
    torch.manual_seed(3)
    a = g(x) + g(x)
    torch.manual_seed(3)
    b = f(x) + f(x)
    torch_pjrt.sync()
    for p, q in zip(a, b, strict=True):
        assert torch.equal(p.cpu(), q.cpu())


def test_tracing_draws_nothing():
    torch.manual_seed(5)
    a = torch.rand(3, device=D)
    f = compiled(lambda x: x + torch.rand_like(x))
    torch.manual_seed(5)
    b = f(torch.zeros(3, device=D))
    torch_pjrt.sync()
    assert torch.equal(a.cpu(), b.cpu())


def test_a_checkpoint_drops_the_same_elements_again():
    f = compiled(lambda x: checkpoint(lambda v: F.dropout(v, 0.5), x, use_reentrant=False))
    x = torch.ones(512, device=D, requires_grad=True)
    for _ in range(2):
        x.grad = None
        y = f(x)
        y.sum().backward()
        torch_pjrt.sync()
        assert torch.equal(y.detach().cpu(), x.grad.cpu())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(4, 2)
        self.h = nn.Linear(2, 4, bias=False)
        self.h.weight = self.e.weight

    def forward(self, i):
        return self.h(self.e(i))


def test_tied_weights_stay_one():
    m = Tied().to(D)
    nn.init.constant_(m.e.weight, 0.5)
    compiled(m)(torch.tensor([1], device=D)).sum().backward()
    torch_pjrt.sync()
    assert m.h.weight is m.e.weight
    assert m.e.weight.grad.sum(1).tolist() == [1, 5, 1, 1]


def test_autocast_around_a_compiled_module():
    m = nn.Linear(4, 4).to(D)
    f = compiled(m)
    with torch.autocast("xla", dtype=torch.bfloat16):
        y = f(torch.ones(2, 4, device=D))
    y.float().sum().backward()
    torch_pjrt.sync()
    assert y.dtype is torch.bfloat16
    assert m.weight.grad.dtype is torch.float32
    assert m.weight.grad.eq(2).all().cpu()


def test_a_learning_rate_schedule_beyond_the_recompile_limit():
    p = nn.Parameter(torch.ones(1, device=D))
    p.grad = torch.ones(1, device=D)
    o = torch.optim.SGD([p], lr=0.5)
    f = compiled(o.step)
    for i in range(12):
        o.param_groups[0]["lr"] = 0.5 / 2**i
        f()
    torch_pjrt.sync()
    assert abs(p.item() - (1 - sum(0.5 / 2**i for i in range(12)))) < 1e-6


def test_many_shapes():
    f = compiled(lambda x: x.sum(0) * x.shape[0])
    for n in (2, 3, 4, 5, 2):
        assert f(torch.ones(n, 2, device=D)).tolist() == [n * n] * 2


def test_a_read_breaks_the_graph_and_nothing_else():
    def g(x):
        y = x * 2
        return y + 1 if y.sum().item() > 3 else y - 1

    f = compiled(g)
    assert f(torch.ones(3, device=D)).tolist() == [3] * 3
    assert f(torch.zeros(3, device=D)).tolist() == [-1] * 3


def test_an_error_leaves_the_arguments():
    def g(a, b):
        a.add_(1)
        return a @ b

    a = torch.ones(2, 2, device=D)
    with pytest.raises(Exception, match=r"size|shape"):
        compiled(g)(a, torch.ones(3, 2, device=D))
    torch_pjrt.sync()
    assert a.tolist() == [[1, 1], [1, 1]]


def test_inference_mode_and_then_gradients():
    m = nn.Linear(2, 1, bias=False).to(D)
    nn.init.ones_(m.weight)
    f = compiled(m)
    with torch.inference_mode():
        assert f(torch.ones(1, 2, device=D)).item() == 2
    f(torch.ones(1, 2, device=D)).sum().backward()
    torch_pjrt.sync()
    assert m.weight.grad.tolist() == [[1, 1]]


# ---- what only the product can check ---------------------------------------------------------


def test_a_second_call_records_nothing():
    m = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).to(D)
    f, x = compiled(m), torch.ones(2, 8, device=D)
    with torch.no_grad():
        f(x)
        f(x)
        torch_pjrt.sync()
        before = metrics.counters(), metrics.compiles(), _C.live_aliases()
        y = f(x)
    after = metrics.counters(), metrics.compiles(), _C.live_aliases()
    assert after[1] == before[1]
    assert after[2] == before[2] + 1  # y
    assert after[0]["CompiledCall"] == before[0]["CompiledCall"] + 1
    assert after[0].get("Sync", 0) == before[0].get("Sync", 0)
    assert torch_pjrt.state(y) == "device"


def test_torch_compile_without_a_backend_takes_tensors_of_the_device():
    f = torch.compile(lambda x: torch.sin(x) * 2)
    assert torch.allclose(f(torch.ones(3, device=D)).cpu(), torch.sin(torch.ones(3)) * 2)


def test_a_graph_on_the_cpu_still_goes_to_the_default_backend():
    seen = []
    wrapper = torch._TorchCompileInductorWrapper.__call__
    assert wrapper.__wrapped__ is not None
    f = torch.compile(lambda x: x + 1, backend=lambda gm, inputs: seen.append(gm) or gm.forward)
    assert f(torch.ones(2)).tolist() == [2, 2]
    assert seen


def test_an_updated_argument_is_updated_in_its_memory():
    def g(w, x):
        w.mul_(x)

    w = torch.ones(1024, device=D)
    x = torch.full((1024,), 2.0, device=D)
    torch_pjrt.sync()
    f = compiled(g)
    f(w, x)
    donated = counter("DonatedBuffers")
    f(w, x)
    torch_pjrt.wait()
    assert counter("DonatedBuffers") == donated + 1
    assert w[0].item() == 4


def test_an_argument_that_somebody_else_holds_keeps_its_old_bytes():
    w = torch.ones(4, device=D)
    old = w.clone()
    torch_pjrt.sync()

    def g(w):
        w.add_(1)

    f = compiled(g)
    f(w)
    f(w)
    assert (old.tolist(), w.tolist()) == ([1] * 4, [3] * 4)


def test_a_clone_and_its_source_are_two_arguments():
    p = torch.ones(3, device=D)
    torch_pjrt.sync()
    q = p.clone()
    torch_pjrt.sync()
    f = compiled(lambda a, b: a - 2 * b)
    assert f(p, q).tolist() == [-1] * 3
    assert f(p, torch.zeros(3, device=D)).tolist() == [1] * 3


def test_pending_arguments_are_computed_first():
    f = compiled(lambda x: x + 1)
    x = torch.ones(3, device=D)
    f(x)
    before = counter("CompiledInputSync")
    assert f(x * 2).tolist() == [3] * 3
    assert counter("CompiledInputSync") == before + 1


def test_an_op_on_the_cpu_cuts_the_graph_and_is_named():
    def g(x):
        y = x * 2
        return torch.nonzero(y).sum() + y.sum()

    f = torch.compile(g, backend="openxla", dynamic=False)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert f(torch.tensor([0.0, 1.0, 1.0], device=D)).item() == 7
    assert any("nonzero" in op for _, op, _ in _compile.graph_cuts())


def test_cpu_tensors_among_the_arguments_are_read_at_each_call():
    f = compiled(lambda x, t: x + t.to(D))
    x = torch.zeros(3, device=D)
    for k in (1.0, 5.0):
        assert f(x, torch.full((3,), k)).tolist() == [k] * 3


def test_cpu_tensors_that_a_function_makes_are_results_and_new_values_of_arguments():
    @torch.compile(backend="openxla", fullgraph=True)
    def f(x):
        made = torch.arange(3, device="cpu").to(x.device)
        x.copy_(torch.full((3,), 7.0, device="cpu"))
        return made, made * 2

    for _ in range(2):
        x = torch.zeros(3, device="xla")
        made, twice = f(x)
        assert made.tolist() == [0, 1, 2] and twice.tolist() == [0, 2, 4]
        assert x.tolist() == [7] * 3
        made.add_(1)  # nobody else's tensor


def test_evicted_programs_stay_with_their_function(monkeypatch):
    f, x = compiled(lambda x: x * 3 - 1), torch.ones(3, device=D)
    f(x)
    before = metrics.compiles()
    _C.clear_programs()
    assert f(x).tolist() == [2] * 3
    assert metrics.compiles() == before


def test_ten_thousand_calls_keep_nothing():
    f, x = compiled(lambda x: x + 1), torch.ones(3, device=D)
    with torch.no_grad():
        f(x)
        f(x)
        gc.collect()
        live = _C.live_aliases()
        for _ in range(10_000):
            f(x)
    assert _C.live_aliases() == live


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_training_compiled_equals_training_uncompiled(dropout):
    def run(wrap):
        torch.manual_seed(0)
        m = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 3)
        )
        m = m.double().to(D)
        opt = torch.optim.AdamW(m.parameters(), lr=1e-2)
        f = wrap(m)
        x = torch.randn(8, 6, dtype=torch.float64).to(D)
        y = torch.randint(0, 3, (8,)).to(D)
        losses = []
        torch.manual_seed(1)
        for _ in range(4):
            opt.zero_grad()
            loss = F.cross_entropy(f(x), y)
            loss.backward()
            opt.step()
            torch_pjrt.sync()
            losses.append(loss.item())
        return losses, [p.detach().cpu() for p in m.parameters()], m[1].running_mean.cpu()

    plain, ours = run(lambda m: m), run(compiled)
    assert ours[0] == pytest.approx(plain[0], rel=1e-9)
    for a, b in zip((*plain[1], plain[2]), (*ours[1], ours[2]), strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-9)


def test_a_cpu_argument_may_be_changed_once_the_call_has_returned():
    f = compiled(lambda x, y: (x.to(D), y + 1))
    y = torch.ones(3).to(D)
    for _ in range(2):
        x = torch.zeros(512, 512)
        moved, _ = f(x, y)
        x.add_(1)
        assert moved.sum().item() == 0


@pytest.mark.parametrize("on_cpu", ["input", "weights"])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_compiled_convolution_of_two_devices_is_refused_as_eager_refuses_it(kind, on_cpu):
    m, x = kind(3, 4, 3), torch.ones(2, 3, 8, 8)
    m, x = (m.to(D), x) if on_cpu == "input" else (m, x.to(D))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        m(x)
    line = r"(?s)the same device.*in aten::convolution\n  called at test_compile.py:\d+ in run"
    if FAKE_TENSOR_COMPARES:
        line = r"(?s)the same device.*test_compile.py\", line \d+, in run"

    def run(v):
        return m(v)

    with pytest.raises(RuntimeError, match=line):
        compiled(run)(x)
    assert compiled(run)(x.to(m.weight.device)).shape[1] == 4


def test_fake_tensor_knows_since_2_15_that_a_convolution_has_one_device():
    """Once no older release is served, _compile._check_devices can go."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    def device() -> str:
        with FakeTensorMode():
            out = F.conv2d(torch.empty(2, 3, 8, 8), torch.empty(4, 3, 3, 3, device="xla"))
        return out.device.type

    if FAKE_TENSOR_COMPARES:
        with pytest.raises(RuntimeError, match="the same device"):
            device()
    else:
        assert device() == "cpu"
