"""Conversions of modules keep what a user tied to their parameters, as on any PyTorch device."""

import copy
import io
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import torch_pjrt

CONVERSIONS = {
    "to": lambda m: m.to("xla"),
    "to and back": lambda m: m.to("xla").cpu(),
    "to the same": lambda m: m.to("xla").to("xla"),
    "float": lambda m: m.to("xla").float(),
    "to dtype": lambda m: m.to("xla", torch.float64),
    "half and back": lambda m: m.to("xla").half().float(),
    "double on the CPU": lambda m: m.double(),
    "to_empty": lambda m: m.to_empty(device="xla"),
    "load": lambda m: (m.to("xla").load_state_dict(model().state_dict()), m)[1],
    "load across": lambda m: (m.load_state_dict(model().to("xla").state_dict()), m)[1],
}
every_conversion = pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def input_for(m: nn.Module) -> torch.Tensor:
    p = next(m.parameters())
    return torch.linspace(-1, 1, 6).view(2, 3).to(p.device, p.dtype)


def backward(m: nn.Module) -> None:
    m(input_for(m)).sum().backward()


# ---- what is tied to a Parameter --------------------------------------------------------------


@every_conversion
def test_parameters_stay_the_same_objects(convert):
    m = model()
    before = list(m.parameters())
    assert all(a is b for a, b in zip(convert(m).parameters(), before, strict=True))


@every_conversion
def test_attributes_stay(convert):
    m = model()
    m[0].bias.tag = tag = object()
    assert convert(m)[0].bias.tag is tag


@every_conversion
def test_weak_references_live_and_do_not_hinder(convert):
    m = model()
    refs = [weakref.ref(p) for p in m.parameters()]
    convert(m)
    assert [r() for r in refs] == list(m.parameters())


@every_conversion
def test_tensor_hooks_fire(convert):
    m, seen = model(), []
    m[0].weight.register_hook(lambda g: seen.append(g.device))
    backward(convert(m))
    assert seen == [m[0].weight.device]


@every_conversion
def test_post_accumulate_hooks_fire(convert):
    m, seen = model(), []
    m[2].bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.device))
    backward(convert(m))
    assert seen == [m[2].bias.device]


class Tagged(nn.Parameter):
    pass


@every_conversion
def test_subclasses_of_parameter_stay(convert):
    m = model()
    m[0].weight = Tagged(m[0].weight.detach())
    assert type(convert(m)[0].weight) is Tagged


@every_conversion
def test_gradients_stay_the_same_objects(convert):
    m = model()
    backward(m)
    before = [p.grad for p in m.parameters()]
    convert(m)
    assert all(p.grad is g for p, g in zip(m.parameters(), before, strict=True))


MOVES = {k: f for k, f in CONVERSIONS.items() if k not in ("to_empty", "load", "load across")}


@pytest.mark.parametrize("convert", MOVES.values(), ids=MOVES)
def test_gradients_go_along_with_their_values(convert):
    m = model()
    backward(m)
    want = [p.grad.clone() for p in m.parameters()]
    convert(m)
    for p, g in zip(m.parameters(), want, strict=True):
        assert (p.grad.device, p.grad.dtype) == (p.device, p.dtype)
        torch.testing.assert_close(p.grad.float().cpu(), g, rtol=1e-3, atol=1e-3)


@every_conversion
def test_requires_grad_stays(convert):
    m = model()
    m[0].weight.requires_grad_(False)
    convert(m)
    assert [p.requires_grad for p in m.parameters()] == [False, True, True, True]


@pytest.mark.parametrize("convert", MOVES.values(), ids=MOVES)
def test_tied_weights_stay_tied(convert):
    m = nn.ModuleList([*model(), nn.Linear(4, 2)])
    m[3].weight = m[2].weight
    convert(m)
    assert m[3].weight is m[2].weight


@every_conversion
def test_conversion_while_an_output_lives(convert):
    m = model()
    out = m(input_for(m))
    convert(m)
    del out
    backward(m)


@every_conversion
def test_conversion_while_others_hold_the_parameter(convert):
    m = model()
    held = [m[0].weight, m[0].weight.view(-1), dict(m.named_parameters())]
    convert(m)
    backward(m)
    assert held[0] is m[0].weight


@pytest.mark.parametrize("convert", MOVES.values(), ids=MOVES)
def test_tensors_that_shared_the_memory_stay_behind(convert):
    m = model()
    held, values = m[0].weight.detach(), m[0].weight.detach().clone()
    convert(m)
    assert held.device.type == "cpu" and torch.equal(held, values)


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.1),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_optimizer_made_before_trains_the_converted_module(make, device):
    def train(m: nn.Module, where: str) -> list[torch.Tensor]:
        optimizer = make(m.parameters())
        m.to(where)
        for _ in range(3):
            optimizer.zero_grad()
            backward(m)
            optimizer.step()
        return [p.detach().cpu() for p in m.parameters()]

    torch.testing.assert_close(train(model(), "xla"), train(model(), "cpu"))


def test_optimizer_in_the_middle_of_training_goes_along(device):
    def train(*where: str) -> list[torch.Tensor]:
        m = model()
        optimizer = torch.optim.SGD(m.parameters(), 0.1)
        for place in where:
            m.to(place)
            optimizer.zero_grad()
            backward(m)
            optimizer.step()
        return [p.detach().cpu() for p in m.parameters()]

    torch.testing.assert_close(train("cpu", "xla", "cpu", "xla"), train("cpu", "cpu", "cpu", "cpu"))


# ---- `p.data = q` -----------------------------------------------------------------------------


def test_data_takes_a_value_of_the_other_device():
    p = nn.Parameter(torch.ones(2, 3))
    p.data = torch.zeros(4, device="xla")
    assert (p.device.type, p.shape, p.tolist()) == ("xla", (4,), [0, 0, 0, 0])
    p.data = torch.ones(2, 2)
    assert (p.device.type, p.tolist()) == ("cpu", [[1, 1], [1, 1]])


def test_data_shares_the_memory_it_was_given():
    p, q = torch.ones(2), torch.zeros(3, device="xla")
    p.data = q
    p.add_(1)
    q.mul_(5)
    assert (p.tolist(), q.tolist()) == ([5, 5, 5], [5, 5, 5])


def test_data_keeps_the_version_and_the_autograd_history():
    p = torch.ones(3, requires_grad=True)
    version = p._version
    y = p * 2
    p.data = torch.ones(3, device="xla")
    assert (p._version, p.is_leaf, y.grad_fn.next_functions[0][0].variable is p) == (
        version,
        True,
        True,
    )


def test_data_of_a_view_leaves_its_base():
    base = torch.zeros(2, 3)
    row = base[0]
    row.data = torch.ones(3, device="xla")
    row.add_(1)
    assert (base.tolist(), row.tolist()) == ([[0, 0, 0]] * 2, [2, 2, 2])


def test_data_of_a_grown_tensor_is_its_whole_memory():
    p = torch.ones(2)
    p.data = torch.zeros(2, device="xla")
    q = p.detach()
    p.data.resize_(4)
    p.resize_(4).fill_(7)
    assert (q.shape, p.tolist()) == ((2,), [7, 7, 7, 7])


@pytest.mark.parametrize(
    "other",
    [lambda: torch.ones(2).to_sparse(), lambda: torch.ones(2).to_mkldnn()],
    ids=["sparse", "mkldnn"],
)
def test_data_refuses_other_layouts(other):
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        torch.ones(2, device="xla").data = other()


def test_integers_cannot_be_the_data_of_what_requires_grad():
    with pytest.raises(RuntimeError, match="floating point or complex"):
        nn.Parameter(torch.ones(2)).data = torch.ones(2, dtype=torch.int64, device="xla")


def test_grad_of_another_device_is_refused_as_on_any_device():
    p = nn.Parameter(torch.ones(2))
    p.data = torch.ones(2, device="xla")
    with pytest.raises(RuntimeError, match="device"):
        p.grad = torch.ones(2)


def test_set_tensors_of_state_are_counted_as_one_memory():
    p = nn.Parameter(torch.ones(4))
    p.data = q = torch.ones(4, device="xla")
    assert torch._C._is_alias_of(p, q)
    assert p.untyped_storage()._cdata == q.untyped_storage()._cdata
    assert not torch._C._is_alias_of(p, q.clone())


# ---- kinds of modules -------------------------------------------------------------------------


RNNS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


@pytest.mark.parametrize("kind", RNNS.values(), ids=RNNS)
@pytest.mark.parametrize("assign", [False, True], ids=["copy", "assign"])
@pytest.mark.parametrize("where", ["cpu", "xla"])
def test_rnns_load_their_own_state(kind, assign, where):
    m = kind(3, 4, num_layers=2).to(where)
    x = torch.randn(5, 1, 3, device=where)
    before = m(x)[0].tolist()
    m.load_state_dict(m.state_dict(), assign=assign)
    assert m(x)[0].tolist() == before
    assert all(a is b for a, b in zip(m._flat_weights, m.parameters(), strict=True))


@pytest.mark.parametrize("kind", RNNS.values(), ids=RNNS)
def test_rnns_compute_the_same_after_a_round_trip(kind):
    m, x = kind(3, 4), torch.randn(5, 1, 3)
    want = m(x)[0]
    torch.testing.assert_close(m.to("xla")(x.to("xla"))[0].cpu(), want)
    assert torch.equal(m.cpu()(x)[0], want)


LAZY = {
    "LazyLinear": lambda: (nn.LazyLinear(4), (2, 3)),
    "LazyConv2d": lambda: (nn.LazyConv2d(4, 3), (1, 2, 5, 5)),
    "LazyBatchNorm1d": lambda: (nn.LazyBatchNorm1d(), (4, 3)),
    "two": lambda: (nn.Sequential(nn.LazyLinear(4), nn.LazyLinear(2)), (2, 3)),
}


@pytest.mark.parametrize("make", LAZY.values(), ids=LAZY)
def test_lazy_modules_take_their_shape_on_the_device(make):
    m, shape = make()
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    m.to("xla")
    out = m(torch.ones(shape, device="xla"))
    out.sum().backward()
    optimizer.step()
    held = optimizer.param_groups[0]["params"]
    assert all(a is b for a, b in zip(held, m.parameters(), strict=True))
    assert all(type(p) is nn.Parameter and p.device.type == "xla" for p in m.parameters())


SCRIPTS = {
    "script": lambda m: torch.jit.script(m),
    "trace": lambda m: torch.jit.trace(m, input_for(m)),
    "loaded": lambda m: reload(torch.jit.script(m)),
}


def reload(m: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    file = io.BytesIO()
    torch.jit.save(m, file)
    file.seek(0)
    return torch.jit.load(file)


@pytest.mark.parametrize("make", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize(
    "convert",
    [lambda m: m.to("xla"), lambda m: m.to("xla").cpu(), lambda m: m.double()],
    ids=["to", "to and back", "double"],
)
def test_scripted_modules_keep_their_parameters(make, convert):
    m = make(model())
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    convert(m)
    before = [p.detach().cpu().clone() for p in m.parameters()]
    backward(m)
    optimizer.step()
    for p, old in zip(m.parameters(), before, strict=True):
        assert not torch.equal(p.detach().cpu(), old)
    assert [p.device for p in m.state_dict().values()] == [p.device for p in m.parameters()]


WRAPPED = {
    "weight_norm": lambda m: parametrizations.weight_norm(m),
    "orthogonal": lambda m: parametrizations.orthogonal(m),
    "spectral_norm": lambda m: parametrizations.spectral_norm(m),
    "old weight_norm": lambda m: nn.utils.weight_norm(m),
    "pruned": lambda m: prune.l1_unstructured(m, "weight", 0.5),
    "random pruned": lambda m: prune.random_unstructured(m, "bias", 1),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
@pytest.mark.parametrize("cached", [False, True], ids=["", "after forward"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_parametrized_and_pruned_modules_convert(wrap, cached):
    torch.manual_seed(0)
    m = wrap(nn.Linear(3, 3)).eval()
    x = torch.linspace(-1, 1, 6).view(2, 3)
    out = m(x) if cached else None
    want, before = m(x).detach(), list(m.parameters())
    m.to("xla")
    assert all(a is b for a, b in zip(m.parameters(), before, strict=True))
    torch.testing.assert_close(m(x.to("xla")).detach().cpu(), want)
    torch.testing.assert_close(m.cpu()(x).detach(), want)
    del out


AVERAGES = {
    "swa": lambda m: torch.optim.swa_utils.AveragedModel(m),
    "ema": lambda m: torch.optim.swa_utils.AveragedModel(
        m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    ),
    "weak": lambda m: weakref.WeakKeyDictionary({p: p.detach().clone() for p in m.parameters()}),
    "copy": copy.deepcopy,
}


@pytest.mark.parametrize("make", AVERAGES.values(), ids=AVERAGES)
def test_averages_outlive_a_conversion(make):
    m = model()
    average = make(m)
    m.to("xla")
    if isinstance(average, nn.Module):
        average.to("xla")
        if hasattr(average, "update_parameters"):
            average.update_parameters(m)
        assert {p.device.type for p in average.parameters()} == {"xla"}
    else:
        assert set(average) == set(m.parameters())


def exported() -> tuple[nn.Module, nn.Module]:
    m = model()
    return m, torch.export.export(m, (input_for(m),)).module()


@pytest.mark.parametrize("which", [0, 1], ids=["the module", "its program"])
@pytest.mark.parametrize(
    "convert",
    [lambda m: m.to("xla"), lambda m: m.double(), lambda m: m.to("xla").half()],
    ids=["to", "double", "half"],
)
def test_export_does_not_hinder_conversion(which, convert):
    m = exported()[which]
    before = list(m.parameters())
    convert(m)
    assert all(a is b for a, b in zip(m.parameters(), before, strict=True))
    m.double().to("xla")
    if which == 0:
        assert m(input_for(m)).device.type == "xla"


@pytest.mark.parametrize("name", ["half", "double", "bfloat16"])
def test_modules_convert_under_a_fake_mode(name):
    m = nn.Linear(2, 3)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        getattr(m, name)()
    assert {p.dtype for p in m.parameters()} == {getattr(torch, name)}


def test_meta_modules_materialise():
    with torch.device("meta"):
        m = model()
    m.to_empty(device="xla")
    m.load_state_dict(model().state_dict())
    torch.testing.assert_close(m(input_for(m)).cpu(), model()(torch.linspace(-1, 1, 6).view(2, 3)))


def test_assigned_state_is_the_module_s():
    m, state = model(), model().to("xla").state_dict()
    m.load_state_dict(state, assign=True)
    assert {p.device.type for p in m.parameters()} == {"xla"}
    assert m[0].weight.untyped_storage()._cdata == state["0.weight"].untyped_storage()._cdata


def test_buffers_are_new_tensors_as_on_any_device():
    m = nn.BatchNorm1d(3)
    before = m.running_mean
    m.to("xla")
    assert before.device.type == "cpu" and m.running_mean.device.type == "xla"


def test_conversion_in_forward():
    class Moves(nn.Linear):
        def forward(self, x):
            return nn.functional.linear(x, self.to(x.device, x.dtype).weight, self.bias)

    m, x = Moves(3, 2), torch.ones(1, 3)
    want = m(x)
    for there in (x.to("xla"), x, x.to("xla")):
        torch.testing.assert_close(m(there).cpu(), want)


@pytest.mark.parametrize(
    "through", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_converted_modules_are_copied(through):
    m = through(model().to("xla"))
    assert {p.device.type for p in m.parameters()} == {"xla"}
    backward(m)
    assert all(p.grad is not None for p in m.parameters())


def test_converted_parameters_are_trained_as_one_program(compiles):
    m = model().to("xla")
    optimizer = torch.optim.SGD(m.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        backward(m)
        optimizer.step()
        torch_pjrt.sync()

    step()
    with compiles() as seen:
        for _ in range(3):
            step()
    assert (seen.count, seen.cuts) == (0, 0)


def test_memory_goes_with_the_last_tensor():
    torch_pjrt.sync(wait=True)
    before = torch_pjrt.memory()["live_bytes"]
    p = nn.Parameter(torch.ones(1000))
    weak = weakref.ref(p)
    p.data = torch.ones(1000, device="xla") + 1
    torch_pjrt.sync(wait=True)
    assert torch_pjrt.memory()["live_bytes"] >= before + 4000
    p.data = torch.ones(1)
    assert weak() is p
    torch_pjrt.wait()
    assert torch_pjrt.memory()["live_bytes"] == before


def test_backward_on_the_device_after_one_on_the_cpu(run_python):
    """Autograd's engine is then there already, without threads for the device."""
    ran = run_python(
        code="import torch, torch_pjrt\n"
        "torch.ones(2, requires_grad=True).sum().backward()\n"
        "x = torch.ones(2, device='xla', requires_grad=True)\n"
        "(x * 2).sum().backward()\n"
        "print(x.grad.tolist())"
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "[2.0, 2.0]"), ran.stderr
