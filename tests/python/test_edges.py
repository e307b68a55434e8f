"""Edges of PyTorch: files, modules, optimizers, transforms, fake tensors, autocast, threads."""

import copy
import io
import itertools
import pickle
import threading
import warnings

import pytest
import torch
from eager import assert_equal, check, check_error, moved, outcome
from torch import nn
from torch.nn import functional as F

import torch_pjrt


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def batch() -> torch.Tensor:
    return torch.linspace(-1, 1, 20).view(5, 4)


# ---- bytes up and down ----------------------------------------------------------------------

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_up_and_down(dtype):
    x = torch.tensor([[0, 1, 2], [3, 100, 5]]).to(dtype)
    y = moved(x)
    assert y.dtype == dtype
    assert torch.equal(y.cpu(), x)
    assert y.tolist() == x.tolist()
    assert y[1, 1].item() == x[1, 1].item()
    assert torch.equal((y.t() == y.t()).cpu(), torch.ones(3, 2, dtype=torch.bool))


def test_special_values_keep_their_bits(device):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 3.4e38])
    assert torch.equal(x.to(device).cpu().view(torch.int32), x.view(torch.int32))


def test_sparse_tensors_are_refused(device):
    dense = torch.ones(2, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(NotImplementedError):
            dense.to_sparse()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(12.0).view(3, 4).t(),
        lambda: torch.arange(12.0)[::3],
        lambda: torch.arange(4.0).expand(3, 4),
        lambda: torch.arange(48.0).view(2, 3, 2, 4).to(memory_format=torch.channels_last),
        lambda: torch.empty(0, 3),
        lambda: torch.tensor(5.0),
    ],
    ids=["transposed", "stepped", "expanded", "channels_last", "empty", "0-d"],
)
def test_any_layout_goes_up_and_down(make, device):
    x = make()
    assert torch.equal(x.to(device).cpu(), x)
    assert x.to(device).stride() == x.clone().stride()


def test_ways_to_make_a_tensor(device):
    x = torch.ones(2, 2).to(device)
    made = [
        torch.tensor([1, 2], device=device), torch.as_tensor([1.0], device=device),
        torch.zeros(2, device=device), torch.full((2,), 3, device=device), x.new_ones(2),
        torch.arange(5, device=device), torch.linspace(0, 1, 5, device=device), x.new_tensor([1]),
        torch.eye(3, device=device), torch.empty_like(x).fill_(1), torch.tril_indices(3, 3).to(x),
        torch.ones(3).to("xla:0"), torch.ones(3).to(x), torch.complex(x, x), x.double(), x.bool(),
    ]  # fmt: skip
    assert {str(t.device) for t in made} == {"xla:0"}
    assert made[3].dtype == torch.int64
    assert made[5].tolist() == [0, 1, 2, 3, 4]
    assert made[6].tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_default_device(device):
    with torch.device(device):
        assert torch.ones(2).device.type == "xla"
        assert nn.Linear(2, 2).weight.device.type == "xla"
    torch.set_default_device(device)
    try:
        assert (torch.arange(3) + torch.zeros(3)).device.type == "xla"
    finally:
        torch.set_default_device(None)


def test_what_a_tensor_says_of_itself(device):
    x = torch.ones(2, 3, device=device)
    assert (x.is_xla, x.is_cuda, x.is_cpu) == (True, False, False)
    assert x.get_device() == 0
    assert x.layout == torch.strided
    assert (x.element_size(), x.nbytes) == (4, 24)
    assert x.storage_offset() == 0
    assert hash(x) == hash(x)
    assert x in {x: 1}


def test_repr_is_eagers_with_the_device(device):
    for x in (torch.arange(6.0).view(2, 3), torch.tensor(1.5), torch.tensor([True]), torch.ones(0)):
        plain = repr(x)
        ours = repr(x.to(device))
        assert ours.replace(", device='xla:0'", "").replace("\n       ", "") == plain.replace(
            "\n       ", ""
        )
        assert "device='xla:0'" in ours
    assert "requires_grad=True" in repr(torch.ones(2, device=device, requires_grad=True))
    assert "grad_fn=<MulBackward0>" in repr(torch.ones(2, device=device, requires_grad=True) * 2)


def test_python_protocols(device):
    x = torch.arange(4.0).to(device)
    assert (len(x), 2.0 in x, [v.item() for v in x]) == (4, True, [0, 1, 2, 3])
    assert [v.item() for v in reversed(x)] == [3, 2, 1, 0]
    assert round(x[2].item()) == 2
    assert f"{x[3]:.2f}" == "3.00"
    assert complex(x[1]) == 1 + 0j
    assert "abcd"[x[1].long()] == "b"


# ---- files and copies -----------------------------------------------------------------------


def reloaded(obj, **options):
    f = io.BytesIO()
    torch.save(obj, f)
    f.seek(0)
    return torch.load(f, **options)


@pytest.mark.parametrize("pending", [True, False])
def test_save_and_load_keep_values_and_device(device, pending):
    x = torch.arange(6.0).view(2, 3).to(device) * 2
    if not pending:
        torch_pjrt.sync()
    y = reloaded({"x": x, "t": x.t()})
    assert y["x"].device.type == "xla"
    assert torch.equal(y["x"].cpu(), x.cpu())
    assert torch.equal(y["t"].cpu(), x.t().cpu())


def test_pickle_keeps_values(device):
    x = torch.arange(6.0).to(device) + 1
    y = pickle.loads(pickle.dumps(x))
    assert y.device.type == "xla"
    assert torch.equal(y.cpu(), x.cpu())
    p = pickle.loads(pickle.dumps(nn.Parameter(x)))
    assert isinstance(p, nn.Parameter)
    assert p.requires_grad


def test_deepcopy_of_a_module_is_apart_and_keeps_ties(device):
    m = net().to(device)
    m[2].tied = m[0].weight
    c = copy.deepcopy(m)
    assert c[2].tied is c[0].weight
    with torch.no_grad():
        c[0].weight.zero_()
    assert m[0].weight.abs().sum().item() > 0


def test_module_state_goes_through_a_file(device):
    m = net().to(device)
    other = net()
    other.load_state_dict(reloaded(m.state_dict(), map_location="cpu"))
    assert_equal(list(m.state_dict().values()), list(other.state_dict().values()), exact=True)
    third = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
    before = third[0].weight
    third.load_state_dict(other.state_dict())
    assert third[0].weight is before
    assert before.device.type == "xla"
    assert_equal(third(batch().to(device)), other(batch()))


# ---- modules and optimizers -----------------------------------------------------------------


def test_tied_weights_stay_tied(device):
    m = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    m["b"].weight = m["a"].weight
    m.to(device)
    assert m["a"].weight is m["b"].weight
    with torch.no_grad():
        m["a"].weight.fill_(2)
    assert m["b"].weight.sum().item() == 18
    assert len(list(m.parameters())) == 3


def test_optimizer_made_before_the_move_trains_the_moved_weights(device):
    m = net()
    o = torch.optim.Adam(m.parameters(), lr=0.1)
    m.to(device)
    before = m[0].weight.detach().clone()
    m(batch().to(device)).square().sum().backward()
    o.step()
    assert not torch.equal(m[0].weight.cpu(), before.cpu())
    assert {s["exp_avg"].device.type for s in o.state.values()} == {"xla"}


def test_module_goes_there_and_back(device):
    m = net()
    want = m(batch()).detach()
    m.to(device).to(torch.float64).to(torch.float32)
    assert_equal(m(batch().to(device)).detach(), want)
    m.cpu()
    assert m[0].weight.device.type == "cpu"
    torch.testing.assert_close(m(batch()).detach(), want)


def test_to_empty_from_meta(device):
    with torch.device("meta"):
        m = net()
    m.to_empty(device=device)
    m.load_state_dict(net().state_dict())
    assert_equal(m(batch().to(device)), net()(batch()))


def test_optimizer_state_moves_through_a_state_dict(device):
    m = net().to(device)
    o = torch.optim.Adam(m.parameters(), lr=0.01)
    m(batch().to(device)).sum().backward()
    o.step()
    saved = reloaded(o.state_dict(), map_location="cpu")
    assert saved["state"][0]["exp_avg"].device.type == "cpu"
    p = torch.optim.Adam(m.parameters(), lr=0.01)
    p.load_state_dict(saved)
    assert p.state[m[0].weight]["exp_avg"].device.type == "xla"
    assert p.state[m[0].weight]["step"].item() == 1


def test_grad_is_freed_and_accumulates(device):
    x = torch.ones(2, device=device, requires_grad=True)
    (x * 2).sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [5, 5]
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_parametrizations(device):
    m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).to(device)
    m(torch.ones(1, 3, device=device)).sum().backward()
    assert m.parametrizations.weight.original0.grad.device.type == "xla"


def test_vector_of_parameters(device):
    m = net().to(device)
    v = nn.utils.parameters_to_vector(m.parameters())
    nn.utils.vector_to_parameters(v * 0 + 1, m.parameters())
    assert sum(p.sum().item() for p in m.parameters()) == v.numel()


# ---- autograd -------------------------------------------------------------------------------


def test_double_backward():
    def program(x):
        y = (x**3 * torch.sin(x)).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (g * g).sum().backward()
        return g.detach(), x.grad

    check(program, torch.linspace(0.1, 1, 6).requires_grad_())


def test_gradient_penalty_through_a_network():
    def program(x):
        m = net().to(x.device)
        (g,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        g.norm(2, 1).sub(1).square().mean().backward()
        return [p.grad for p in m.parameters() if p.grad is not None]

    check(program, batch().requires_grad_())


def test_gradcheck(device):
    x = torch.rand(2, 3, dtype=torch.float64).to(device).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: (x.sin() @ x.t()).sum(0), (x,), fast_mode=True)


def test_hooks_run(device):
    seen = []
    m = net().to(device)
    m[0].register_forward_hook(lambda *_: seen.append("forward"))
    m[0].register_full_backward_hook(lambda *_: seen.append("backward"))
    m[0].weight.register_hook(lambda g: seen.append("grad") or g * 2)
    m[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    m(batch().to(device)).sum().backward()
    assert seen == ["forward", "grad", "accumulated", "backward"] or sorted(seen) == sorted(
        ["forward", "grad", "accumulated", "backward"]
    )
    plain = net()
    plain(batch()).sum().backward()
    assert_equal(m[0].weight.grad, plain[0].weight.grad * 2)


def test_custom_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    check(lambda x: (Cube.apply(x).sum().backward(), x.grad)[1], batch().requires_grad_())


def test_saved_tensors_on_the_cpu():
    def program(x):
        with torch.autograd.graph.save_on_cpu():
            y = (x.exp() * x).sum()
        y.backward()
        return x.grad

    check(program, batch().requires_grad_())


def test_no_grad_and_inference_mode(device):
    x = torch.ones(2, device=device, requires_grad=True)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        y = x * 2
        z = y.t()[1:]
        y.add_(1)
    assert y.is_inference()
    assert (y.tolist(), z.tolist()) == ([3, 3], [3])
    with pytest.raises(RuntimeError, match=r"(?i)inference"):
        (y * x).sum().backward()


INFERENCE = {
    "view": lambda x: x.view(6),
    "reshape": lambda x: x.t().reshape(6),
    "t": lambda x: x.t(),
    "slice": lambda x: x[0, 1:],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "write a detached one": lambda x: [x.detach().mul_(2), x][1],
    "chunk": lambda x: x.chunk(2)[1],
    "expand": lambda x: x[0].expand(2, 3),
    "as_strided": lambda x: x.as_strided((2,), (1,)),
    "view_as_real": lambda x: torch.view_as_real(torch.view_as_complex(x.view(3, 2))),
    "real": lambda x: torch.view_as_complex(x.view(3, 2)).conj().real,
    "conj": lambda x: torch.view_as_complex(x.view(3, 2)).conj()[1:],
    "mul": lambda x: x * 2,
    "add_": lambda x: x.add_(1),
    "t_": lambda x: x.t_(),
    "write a view": lambda x: [x[0].add_(1), x][1],
    "write a view's view": lambda x: [x.view(6)[2:].mul_(x[1, 1]), x][1],
    "setitem": lambda x: [x.__setitem__(0, 9.0), x][1],
    "out": lambda x: torch.add(x, 1, out=x),
    "foreach": lambda x: [torch._foreach_add_([x], 1), x][1],
    "linear": lambda x: torch.nn.functional.linear(x, x + 1, x[:, 0]),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x),
}


def how_tracked(t: torch.Tensor) -> tuple[object, ...]:
    version = "none" if t.is_inference() else t._version
    return (t.is_inference(), t._is_view(), t.is_leaf, t.requires_grad, version, t.stride())


@pytest.mark.parametrize("of", ["normal", "leaf", "inference"])
@pytest.mark.parametrize("within", [True, False], ids=["within", "after"])
@pytest.mark.parametrize("f", INFERENCE.values(), ids=INFERENCE)
def test_inference_mode_tracks_what_eager_tracks(device, f, within, of):
    def program(where):
        with torch.inference_mode(of == "inference"):
            x = torch.arange(6.0, device=where).reshape(2, 3).clone()
        if of == "leaf":
            x.requires_grad_()
        with torch.inference_mode(within):
            y = f(x)
        return y, x

    eager, error, _ = outcome(program, "cpu")
    ours, our_error, _ = outcome(program, device)
    assert type(our_error) is type(error), our_error
    if error is None:
        assert [how_tracked(t) for t in ours] == [how_tracked(t) for t in eager]
        assert_equal(ours, eager)


def test_anomaly_mode_names_the_forward_line(device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True):
            x = torch.zeros(2, device=device, requires_grad=True)
            with pytest.raises(RuntimeError, match="nan values"):
                (x.sqrt() * 0).sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant):
    def program(x):
        m = net().to(x.device)
        y = torch.utils.checkpoint.checkpoint(m, x, use_reentrant=reentrant)
        y.sum().backward()
        return [x.grad, *[p.grad for p in m.parameters()]]

    check(program, batch().requires_grad_())


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_draws_one_dropout_mask(device, reentrant):
    x = torch.ones(200, device=device, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(F.dropout, x, 0.5, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


# ---- transforms and fake tensors ------------------------------------------------------------


def f(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).view(-1)[1:].cumsum(0)


@pytest.mark.parametrize(
    "transform",
    [
        lambda x: torch.func.jacrev(f)(x),
        lambda x: torch.func.jacfwd(f)(x),
        lambda x: torch.func.vmap(f)(x),
        lambda x: torch.func.vmap(lambda a, b: a @ b, (0, None))(x.view(2, 2, 3), x[:3]),
        lambda x: torch.func.grad(lambda x: f(x).sum())(x),
        lambda x: torch.func.hessian(lambda x: f(x).sum())(x[:1]),
        lambda x: torch.func.jvp(f, (x,), (x + 1,)),
        lambda x: torch.func.vjp(f, x)[1](f(x)),
        lambda x: torch.func.linearize(f, x)[1](x),
        lambda x: torch.func.functionalize(lambda x: x.clone().add_(1).t().mul_(2))(x),
        lambda x: torch.func.jacrev(lambda x: x.diagonal() * 2)(x),
    ],
    ids=["jacrev", "jacfwd", "vmap", "vmap_mm", "grad", "hessian", "jvp", "vjp", "linearize",
         "functionalize", "jacrev_diagonal"],
)  # fmt: skip
def test_transform_gives_eagers_values(transform):
    x = torch.linspace(-1, 1, 12).view(4, 3)
    ours, eager = transform(moved(x)), transform(x)
    assert_equal(ours, eager)


def test_vmap_over_a_module_ensemble(device):
    m = net().to(device)
    params = {k: torch.stack([v, v * 2]) for k, v in m.named_parameters()}
    call = torch.func.vmap(lambda p, x: torch.func.functional_call(m, p, (x,)), in_dims=(0, None))
    out = call(params, batch().to(device))
    assert out.shape == (2, 5, 3)
    assert_equal(out[0].detach(), net()(batch()).detach())


def test_fake_tensors_keep_the_device(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.ones(2, 3, device=device)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        y = (fake @ fake.t()).relu()[1:].sum(0)
        z = torch.empty(4, device=device)
    assert (y.device, tuple(y.shape)) == (x.device, (2,))
    assert z.device.type == "xla"


def test_make_fx_traces(device):
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.linspace(0, 1, 6).view(2, 3).to(device)
    for mode in ("real", "fake"):
        g = make_fx(lambda x: x.t().sin() @ x, tracing_mode=mode)(x)
        assert_equal(g(x), x.cpu().t().sin() @ x.cpu())


def test_export(device):
    m = net().to(device)
    program = torch.export.export(m, (batch().to(device),))
    assert_equal(program.module()(batch().to(device)).detach(), net()(batch()).detach())


def test_dispatch_mode_sees_the_ops(device):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.ones(2, device=device)
    with Watch():
        y = (x + 1).t().clone()
    assert seen[0] == "aten.add.Tensor"
    assert y.tolist() == [2, 2]


def test_tensor_subclass(device):
    class Mine(torch.Tensor):
        pass

    x = torch.ones(2, device=device).as_subclass(Mine)
    y = x * 2
    assert type(y) is Mine
    assert y.tolist() == [2, 2]


# ---- conjugates -----------------------------------------------------------------------------


CONJUGATES = {
    "clone": lambda z: z.conj().clone(),
    "add": lambda z: z.conj() + z,
    "resolve": lambda z: z.conj().resolve_conj(),
    "matmul": lambda z: z @ z.mH,
    "imag": lambda z: z.conj().imag.clone(),
    "negative view": lambda z: torch._neg_view(z.real.contiguous()) + 1,
    "imag write": lambda z: [y := z.clone(), y.imag.mul_(2), y][2],
    "conj write": lambda z: [y := z.clone(), y.conj().mul_(1j), y][2],
    "conj copy": lambda z: [y := z.clone(), y.conj().copy_(z), y][2],
    "conj fill": lambda z: [y := z.clone(), y.conj().fill_(1 + 2j), y][2],
    "copy into": lambda z: torch.zeros_like(z).copy_(z.conj()),
    "transposed": lambda z: z.conj().t()[0].clone(),
    "abs": lambda z: z.conj().abs(),
    "to": lambda z: z.conj().to(torch.complex128),
    "real": lambda z: z.conj().real * 1,
    "view": lambda z: torch.view_as_real(z.conj().resolve_conj()),
    "sum": lambda z: z.conj().sum(0),
    "setitem": lambda z: [y := z.clone(), y.__setitem__(0, z[1].conj()), y][2],
}


@pytest.mark.parametrize("name", CONJUGATES)
def test_conjugate_and_negative_bits_are_honoured(name):
    z = torch.complex(torch.arange(4.0).view(2, 2), torch.tensor([[1.0, -2.0], [0.5, 3.0]]))
    ours, eager = CONJUGATES[name](moved(z)), CONJUGATES[name](z)
    assert_equal(ours, eager)


def test_conjugate_is_lazy_and_read_right(device):
    z = torch.tensor([1 + 2j, 3 - 4j]).to(device)
    c = z.conj()
    assert c.is_conj()
    assert c.tolist() == [1 - 2j, 3 + 4j]
    assert c.cpu().resolve_conj().tolist() == [1 - 2j, 3 + 4j]
    assert c[0].item() == 1 - 2j
    assert c.imag.is_neg()
    assert c.imag.tolist() == [-2, 4]
    z.mul_(2)
    assert c.tolist() == [2 - 4j, 6 + 8j]


def test_inverse_fft_has_a_backward(device):
    def program(x):
        y = torch.fft.ifft(x * (1 + 0j))
        (y.real * y.real + y.imag).sum().backward()
        return x.grad

    check(program, torch.arange(1.0, 9).requires_grad_())


def test_complex_gradients():
    def program(z):
        (z * z.conj()).real.sum().backward()
        return z.grad.resolve_conj()

    check(program, torch.tensor([1 + 2j, 3 - 1j]).requires_grad_())


# ---- set_ -----------------------------------------------------------------------------------


def test_is_set_to(device):
    x = torch.ones(2, 3, device=device)
    assert x.is_set_to(x.detach())
    assert not x.is_set_to(x.t())
    assert not x.is_set_to(x.clone())


# ---- autocast -------------------------------------------------------------------------------


def test_autocast_runs_matmuls_low_and_losses_high(device):
    m = net().to(device)
    x = batch().to(device)
    with torch.autocast("xla"):
        y = m(x)
        high = F.softmax(y, 1), F.layer_norm(y, (3,)), F.mse_loss(y, y.float() + 1), y.exp()
        mixed = y + x[:, :3]
        conv = F.conv1d(x[None], torch.ones(2, 5, 3, device=device))
        with torch.autocast("xla", enabled=False):
            plain = m(x)
    assert (y.dtype, conv.dtype, plain.dtype) == (torch.bfloat16, torch.bfloat16, torch.float32)
    assert {t.dtype for t in high[:3]} == {torch.float32}
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(y.float().cpu(), net()(batch()).detach(), rtol=0.03, atol=0.03)


def test_autocast_in_half_with_a_scaler_trains(device):
    m = net().to(device)
    o = torch.optim.SGD(m.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("xla")
    losses = []
    for _ in range(4):
        o.zero_grad()
        with torch.autocast("xla", dtype=torch.float16):
            y = m(batch().to(device))
            assert y.dtype == torch.float16
            loss = y.float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(o)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert m[0].weight.grad.dtype == torch.float32


def test_scaler_skips_steps_with_infinite_gradients(device):
    w = torch.ones(2, device=device, requires_grad=True)
    o = torch.optim.SGD([w], lr=0.1)
    scaler = torch.amp.GradScaler("xla", init_scale=4.0)
    scaler.scale((w * float("inf")).sum()).backward()
    scaler.step(o)
    scaler.update()
    assert w.tolist() == [1, 1]
    assert scaler.get_scale() == 2.0


# ---- the CPU fallback -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def library():
    lib = torch.library.Library("edges", "DEF")
    lib.define("twice(Tensor x) -> Tensor")
    lib.define("first(Tensor(a) x) -> Tensor(a)")
    lib.define("double_(Tensor(a!) x) -> Tensor(a!)")
    lib.impl("twice", lambda x: x * 2, "CPU")
    lib.impl("first", lambda x: x[0], "CPU")
    lib.impl("double_", lambda x: x.mul_(2), "CPU")
    yield torch.ops.edges
    lib._destroy()


def test_op_without_a_lowering_runs_on_the_cpu_and_is_counted(device, library):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = torch_pjrt.metrics.counters().get("edges::twice", 0)
        y = library.twice(torch.ones(2, device=device) + 1)
    assert y.device.type == "xla"
    assert y.tolist() == [4, 4]
    assert torch_pjrt.metrics.counters()["edges::twice"] == before + 1


def test_aten_op_without_a_lowering_is_counted_under_its_name(device, compiles):
    x = torch.tensor([0, 3, 3, 5])
    with warnings.catch_warnings(), compiles() as seen:
        warnings.simplefilter("ignore")
        y = torch.unique_consecutive(x.to(device))  # its shape depends on values
    assert_equal(y, torch.unique_consecutive(x))
    assert [name for name in seen.fallbacks if "unique_consecutive" in name]


def test_fallback_warns_once_a_line_with_that_line(device):
    x = torch.ones(2, device=device, dtype=torch.int64)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.unique_consecutive(x)
        torch.unique_consecutive(x)
    said = [str(w.message) for w in seen if "unique_consecutive" in str(w.message)]
    assert len(said) == 2
    assert all("test_edges.py:" in s for s in said)
    assert said[0] != said[1]


def test_in_place_fallback_writes_back(device, library):
    x = torch.ones(3, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.double_(x[1:])
    assert x.tolist() == [1, 2, 2]


def test_view_op_that_would_be_copied_raises(device, library):
    x = torch.ones(2, 2, device=device)
    with pytest.raises((RuntimeError, NotImplementedError), match="view"):
        library.first(x)


# ---- threads, workers -----------------------------------------------------------------------


def test_threads_record_and_read_side_by_side(device):
    wrong = []

    def work(k: int) -> None:
        x = torch.full((4, 5), float(k)).to(device)
        for i in range(30):
            y = (x * i).t() + 1
            y[0].add_(1)
            if y.sum().item() != 20 * (k * i + 1) + 4:
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert wrong == []
    assert not any(t.is_alive() for t in threads)


def test_backward_from_two_threads(device):
    grads: dict[int, list[float]] = {}

    def work(k: int) -> None:
        w = torch.full((3,), float(k), device=device, requires_grad=True)
        for _ in range(5):
            w.grad = None
            (w * w).sum().backward()
        grads[k] = w.grad.tolist()

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert grads == {1: [2, 2, 2], 2: [4, 4, 4]}


class Squares(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((2,), float(i * i))


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_with_the_device_in_use(device, workers):
    w = torch.ones(2, device=device) + 1
    w.cpu()
    loader = torch.utils.data.DataLoader(Squares(), batch_size=5, num_workers=workers)
    sums = [(b.to(device) * w).sum().item() for b in loader]
    assert sums == [120.0, 1020.0]


# ---- composites that PyTorch would cut or refuse ------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 4])
@pytest.mark.parametrize("r", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("again", [False, True])
def test_combinations_do_not_cut(size, r, again, compiles):
    x = torch.arange(size, dtype=torch.float32)
    with compiles() as seen:
        got = torch.combinations(x.to("xla"), r, again)
    assert_equal(got, torch.combinations(x, r, again))
    assert (seen.cuts, seen.fallbacks) == (0, ())


def test_combinations_have_gradients():
    check(lambda x: torch.autograd.grad((torch.combinations(x, 2) ** 3).sum(), x),
          torch.arange(4.0).requires_grad_())  # fmt: skip


@pytest.mark.parametrize("places", [[1, 3], [], [2, 1, -1], 3])
def test_tensor_split_reads_its_places(places, device):
    x = torch.arange(12.0).view(4, 3)
    got = torch.tensor_split(x.to(device), torch.tensor(places, dtype=torch.int64).to(device))
    want = torch.tensor_split(x, torch.tensor(places, dtype=torch.int64))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert_equal(a, b)


# ---- nan in sequences that count as sorted ------------------------------------------------------

NAN = float("nan")


@pytest.mark.parametrize(
    "sequence", [[NAN], [1, NAN], [-1, 0.5, 2, NAN], [1, 5, NAN, NAN], [1, 2, 3, 4, NAN, NAN, NAN]]
)
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted_with_nan_takes_eagers_steps(sequence, right):
    values = torch.tensor([-2.0, 0.5, 1.0, 3.0, 5.0, 9.0, NAN, float("inf")])
    check(lambda s, v: torch.searchsorted(s, v, right=right), torch.tensor(sequence), values)


def test_searchsorted_of_many_numbers():
    g = torch.Generator().manual_seed(0)
    sequence, values = torch.randn(3, 100, generator=g).sort()[0], torch.randn(3, 7, generator=g)
    check(torch.searchsorted, sequence, values)
    check(torch.searchsorted, sequence[0].contiguous(), values)


def test_isin_a_large_set_with_nan():
    elements = torch.tensor([1.0, 50.0, 99.0, 100.5, NAN, float("inf"), -float("inf")])
    tests = torch.cat([torch.arange(100.0), torch.full((40,), NAN)])
    check(torch.isin, elements, tests)
    check(torch.isin, elements, torch.cat([tests, elements]))
    check(torch.isin, elements, torch.full((80,), NAN))


# ---- strides of elementwise results -------------------------------------------------------------

ITERATED = {
    "where": torch.where,
    "logical_xor": lambda c, x, y: c.logical_xor(x),
    "rsub": lambda c, x, y: torch.rsub(x, y),
    "floor_divide": lambda c, x, y: torch.floor_divide(x, y),
}


@pytest.mark.parametrize("op", ITERATED.values(), ids=ITERATED.keys())
@pytest.mark.parametrize("turned", range(8))
def test_strides_follow_all_operands(op, turned):
    x = torch.arange(1.0, 13.0).view(3, 4)
    args = [x > 5, x, x + 1]
    args = [a.t().contiguous().t() if turned >> i & 1 else a for i, a in enumerate(args)]
    want = op(*args)
    got = op(*map(moved, args))
    assert got.stride() == want.stride()
    assert_equal(got, want)


@pytest.mark.parametrize("op", [torch.add, torch.lt, torch.atan2, torch.where])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.float64])
def test_strides_follow_the_cast_of_an_expanded_operand(op, dtype):
    """Eager casts it before it lays out the result, and a cast is dense."""

    def program(x, y):
        y = y.expand(3, 4)
        return op(x > 3, y, x) if op is torch.where else op(y, x)

    x, y = torch.arange(12.0).view(4, 3).t(), torch.ones(1, dtype=dtype)
    got, want = program(moved(x), moved(y)), program(x, y)
    assert got.stride() == want.stride()
    assert_equal(got, want)


@pytest.mark.parametrize("op", ["remainder", "fmod", "floor_divide"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32])
def test_division_by_the_number_zero(op, dtype):
    x = torch.arange(4).to(dtype)
    if dtype.is_floating_point:
        check(lambda x: getattr(torch, op)(x, 0), x)
    else:
        check_error(lambda x: getattr(torch, op)(x, 0), x)


@pytest.mark.parametrize(
    "op",
    [
        torch.add,
        torch.sub,
        torch.rsub,
        lambda x, y: x.clone().sub_(y.sum()),
        lambda x, y: torch.add(x, y, alpha=2),
        lambda x, y: x + 1,
        lambda x, y: 1 - y,
    ],
)
def test_sums_of_infinite_complex_numbers_have_eagers_parts(op):
    inf = float("inf")
    y = torch.tensor([complex(inf, 0), complex(0, -inf), complex(1, -2), complex(inf, inf)])
    check(op, torch.tensor([1j, 1 + 0j, 2 + 2j, complex(inf, 0)]), y, exact=True)


@pytest.mark.parametrize(
    "op", [lambda x: x.cummax(2), lambda x: x.cummin(-3), lambda x: x.roll(1, 2)]
)
def test_dims_of_empty_tensors_that_eager_does_not_look_at(op):
    check(op, torch.zeros(0, 3))


OVERFLOWING = {torch.int8: [12, -13, 100, -128, 0], torch.int32: [46341, 50000, 3, -(2**31), 0],
               torch.int64: [3037000500, 4 * 10**9, -3, -(2**63), 0]}  # fmt: skip


@pytest.mark.parametrize("dtype", OVERFLOWING, ids=str)
@pytest.mark.parametrize(
    "make", [torch.square, lambda x: x * x, lambda x: x**2, torch.abs, lambda x: (x + 1) * (1 + x)]
)
def test_squares_and_magnitudes_that_overflow_stay_negative(make, dtype):
    """XLA takes them for non-negative, and would simplify what follows."""
    for then in (torch.abs, torch.sign, lambda s: s // 2, lambda s: s.abs() < 0, torch.relu,
                 lambda s: s < 0, lambda s: s >> 1, lambda s: torch.fmod(s, 4)):  # fmt: skip
        check(lambda x, then=then: then(make(x)), torch.tensor(OVERFLOWING[dtype], dtype=dtype))


MASKED = {
    "product": lambda x, m: x * m,
    "cast": lambda x, m: x * m.to(x.dtype),
    "comparison": lambda x, m: x * (x.abs() > 0),
    "in place": lambda x, m: x.clone().mul_(m),
    "addcmul": lambda x, m: torch.addcmul(x.abs(), x, m.to(x.dtype)),
    "broadcast": lambda x, m: x[:, None] * m.to(x.dtype),
    "sum": lambda x, m: (m * x).sum(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("program", MASKED.values(), ids=MASKED.keys())
def test_masks_do_not_hide_what_is_not_finite(program, dtype):
    """XLA makes a product with a bool a select, where nan times false would be 0."""
    x = torch.tensor([NAN, float("inf"), -float("inf"), 1.0, -2.0, 0.0], dtype=dtype)
    check(program, x, torch.tensor([False, False, True, False, True, False]))


def test_products_of_bools_and_nothing():
    """Eager has no product of bools, and does not need one here."""
    b = torch.ones(2, 4, dtype=torch.bool)
    check(torch.mm, b, b[:, :0].t()[:0].new_ones(4, 0))
    check(torch.bmm, b[None], b.new_ones(1, 4, 0))
    check(torch.mv, b[:, :0], b.new_ones(0))


def test_bools_that_are_constants_add_up():
    check(lambda x: (x >= x) + (x >= x), torch.ones(3, dtype=torch.bool))
    check(lambda x: (x != x) + (x == x), torch.ones(3, dtype=torch.bool))
    check(lambda x: (x >= x).add_(True).prod(), torch.ones(3, dtype=torch.bool))


def test_indexing_by_nothing_has_gradients():
    i = torch.empty(0, dtype=torch.int64)
    for shape in ((2,), (2, 3)):
        check(lambda x, i: torch.autograd.grad(x.index_select(0, i).sum(), x),
              torch.ones(shape).requires_grad_(), i)  # fmt: skip
        check(lambda x, i: x.index_add(0, i, x[:0]), torch.ones(shape), i)
        check(lambda x, i: x.index_reduce(0, i, x[:0], "amax"), torch.ones(shape), i)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16], ids=str)
@pytest.mark.parametrize("cut", ["tril_", "triu_"])
@pytest.mark.parametrize("shape", [(4, 6), (8, 8), (2, 3, 5), (16, 4)], ids=str)
def test_what_is_narrowed_and_masked_at_once_is_masked_everywhere(device, dtype, cut, shape):
    """LLVM forgot lanes of such masks: client/pjrt_client.cpp."""
    x = (torch.arange(torch.Size(shape).numel()) * 3 + 1) % 11
    ours, eager = (getattr(x.to(d).to(dtype).view(shape), cut)() for d in (device, "cpu"))
    assert torch.equal(ours.cpu(), eager)


def along(i: torch.Tensor, dim: int, dims: int) -> torch.Tensor:
    """The index as a tensor of that many dims."""
    return i.view([-1 if d == dim else 1 for d in range(dims)])


def slices(x: torch.Tensor, i: torch.Tensor, dim: int) -> torch.Tensor:
    """What an index of a dim selects, in size."""
    return x.new_ones([i.numel() if d == dim else n for d, n in enumerate(x.shape)])


INDEXED = {
    "index_select": lambda x, i, d: x.index_select(d, i),
    "index": lambda x, i, d: x[(slice(None),) * d + (i,)],
    "index_put": lambda x, i, d: x.index_put((i,), x.new_ones(())),
    "index_add": lambda x, i, d: x.index_add(d, i, slices(x, i, d)),
    "index_copy": lambda x, i, d: x.index_copy(d, i, slices(x, i, d)),
    "index_fill": lambda x, i, d: x.index_fill(d, i, 1.0),
    "gather": lambda x, i, d: x.gather(d, along(i, d, x.dim())),
    "scatter": lambda x, i, d: x.scatter(d, along(i, d, x.dim()), 1.0),
    "take": lambda x, i, d: x.take(i),
    "put": lambda x, i, d: x.put(i, x.new_ones(i.shape)),
}


@pytest.mark.parametrize("name", INDEXED)
def test_indices_of_what_is_empty_raise_where_eager_looks_at_them(name, device):
    for shape in [(2, 0, 4), (0, 3), (3, 0), (0,), (3,), (0, 0), (2, 2)]:
        for dim, values in itertools.product(range(len(shape)), ([9], [], [0], [-9])):
            if name == "index_add" and shape[dim] == 0 and values and len(shape) > 1:
                continue  # PyTorch's meta function raises there, its CPU kernel does nothing
            x, i = torch.zeros(shape), torch.tensor(values, dtype=torch.int64)
            want, error, _ = outcome(INDEXED[name], x, i, dim)
            got, ours, _ = outcome(INDEXED[name], x.to(device), i.to(device), dim)
            assert type(ours) is type(error), (shape, dim, values, ours, error)
            assert error is not None or (got.shape == want.shape and got.cpu().equal(want))


def test_indices_that_broadcast_to_nothing_are_not_looked_at(device):
    none, beyond = torch.empty(0, dtype=torch.int64), torch.tensor([7])
    for shape in [(2, 3, 4, 5), (2, 0, 4, 5)]:
        x = torch.arange(float(torch.Size(shape).numel())).view(shape)
        y = x.to(device)
        a, b = none.to(device), beyond.to(device)
        assert y[:, a, :, b].shape == x[:, none, :, beyond].shape
        assert y[a, b].shape == x[none, beyond].shape
        assert y.index_put((a, b), y.new_ones(())).cpu().equal(x)
