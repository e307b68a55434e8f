"""Programs on CPU tensors, for test_import_harmless.py: `cpu_programs.py GROUP [import]` runs those
of a group, after `import torch_pjrt` where asked, and prints what each computed as JSON."""

import copy
import gc
import hashlib
import inspect
import io
import json
import multiprocessing
import os
import pickle
import re
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, stateless

PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(f: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[f.__name__] = f
    return f


def plain(x: Any) -> Any:
    """What JSON can hold, values to the last bit."""
    if isinstance(x, torch.Tensor) and x.device.type == "cpu" and x.layout == torch.strided:
        kept = x.detach().contiguous()
        raw = hashlib.sha1(repr(kept.tolist()).encode()).hexdigest()[:12]
        return [type(x).__name__, str(x.dtype), list(x.shape), x.stride(), x.requires_grad, raw]
    if isinstance(x, torch.Tensor):
        return [type(x).__name__, str(x.dtype), str(x.layout), str(x.device), list(x.shape)]
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [plain(v) for v in x]
    if x is None or isinstance(x, bool | int | float | str):
        return x
    return re.sub(r"0x[0-9a-f]+", "0x", repr(x))


def outcome(f: Callable[[], Any]) -> Any:
    """The program's result or error, and its warnings with the file that they blame."""
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = plain(f())
        except Exception as error:
            result = [type(error).__name__, re.sub(r"0x[0-9a-f]+", "0x", str(error))[:300]]
    return [result, sorted({(w.category.__name__, Path(w.filename).name) for w in seen})]


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


X = torch.linspace(-1, 1, 6).view(2, 3)


def trained(m: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor = X) -> Any:
    for _ in range(3):
        optimizer.zero_grad()
        m(x).square().sum().backward()
        optimizer.step()
    return [list(m.parameters()), optimizer.state_dict()]


# ---- conversions ----------------------------------------------------------------------------


@program
def attributes_of_a_parameter():
    m = nn.Linear(3, 2)
    m.bias.tag = 1
    return [vars(m.float().bias), vars(m.half().bias), vars(m.to(torch.float64).bias)]


@program
def identity_of_parameters():
    m = model()
    before = [*m.parameters()]
    return [
        [a is b for a, b in zip(f(m).parameters(), before, strict=True)]
        for f in (
            nn.Module.half,
            nn.Module.double,
            nn.Module.float,
            nn.Module.cpu,
            lambda m: m.to("meta"),
            lambda m: m.to_empty(device="cpu"),
        )
    ]


@program
def hooks_after_conversion():
    m, seen = model(), []
    m[0].weight.register_hook(lambda g: seen.append(("hook", str(g.dtype))))
    m[2].bias.register_post_accumulate_grad_hook(lambda p: seen.append(("post", str(p.dtype))))
    m.double()
    m(X.double()).sum().backward()
    m.load_state_dict(m.state_dict())
    m.float()(X).sum().backward()
    return seen


@program
def conversion_while_an_output_lives():
    m = model()
    out = m(X)
    m.double()
    return [m(X.double()), out]


@program
def backward_through_an_old_output():
    m = model()
    out = m(X)
    m.double()
    out.sum().backward()
    return [p.grad for p in m.parameters()]


@program
def weak_references():
    m = model()
    refs = [weakref.ref(p) for p in m.parameters()]
    m.half().float()
    gc.collect()
    return [r() is p for r, p in zip(refs, m.parameters(), strict=True)]


@program
def gradients_follow():
    m = model()
    m(X).sum().backward()
    grads = [p.grad for p in m.parameters()]
    m.double()
    return [[p.grad, p.grad is g] for p, g in zip(m.parameters(), grads, strict=True)]


class Tagged(nn.Parameter):
    pass


class Wrapped(torch.Tensor):
    calls: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


@program
def subclasses_of_parameter():
    m = nn.Linear(3, 2)
    m.weight = Tagged(m.weight.detach())
    return [type(f(m).weight).__name__ for f in (nn.Module.half, nn.Module.float)]


@program
def subclasses_of_tensor():
    m = nn.Linear(3, 2)
    m.weight = nn.Parameter(m.weight.detach().as_subclass(Wrapped))
    Wrapped.calls.clear()
    out = m.double()(X.double())
    return [type(out).__name__, type(m.weight).__name__, list(Wrapped.calls)]


@program
def calls_that_a_subclass_sees():
    t = X.as_subclass(Wrapped)
    Wrapped.calls.clear()
    copy.copy(t), repr(t), pickle.dumps(t), t.__dlpack_device__(), t.device
    torch.utils.dlpack.to_dlpack(t)
    return list(Wrapped.calls)


@program
def tied_weights():
    m = nn.ModuleList([nn.Embedding(4, 3), nn.Linear(3, 4)])
    m[1].weight = m[0].weight
    m.double().load_state_dict(m.state_dict())
    return [m[1].weight is m[0].weight, len(list(m.parameters()))]


@program
def data_and_set():
    p, q = nn.Parameter(torch.ones(2, 3)), torch.zeros(4)
    p.data = q
    q.add_(1)
    version = p._version
    p.data = torch.ones(2, 2, dtype=torch.float64)
    return [p, version, p.data_ptr() == p.data.data_ptr(), outcome(lambda: p.data.set_(X))[0]]


@program
def data_of_foreign_kinds():
    def each(other: torch.Tensor) -> Any:
        def assign() -> None:
            nn.Parameter(torch.ones(2)).data = other

        return outcome(assign)[0]

    return [
        each(t)
        for t in (
            torch.ones(2).to_sparse(),
            torch.ones(2).to_mkldnn(),
            torch.ones(2, device="meta"),
            torch.ones(2, dtype=torch.int64),
        )
    ]


@program
def swap_when_asked():
    try:
        torch.__future__.set_swap_module_params_on_conversion(True)
        m = nn.Linear(3, 2)
        p, ref = m.weight, m.weight
        return [m.double().weight is p, ref is p, type(m.weight).__name__]
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@program
def future_switches():
    return [f() for n, f in sorted(vars(torch.__future__).items()) if n.startswith("get_")]


# ---- state dicts, copies, files -------------------------------------------------------------


@program
def load_state_dict():
    m, other, out = model(), model(), []
    for assign in (False, True):
        before = list(m.parameters())
        m.load_state_dict(other.state_dict(), assign=assign)
        out.append([a is b for a, b in zip(m.parameters(), before, strict=True)])
    return [out, list(m.parameters()), outcome(lambda: m.load_state_dict({}))[0]]


@program
def rnns_load_their_state():
    out = []
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        m = kind(3, 4, num_layers=2, bidirectional=True)
        m.load_state_dict(m.state_dict())
        m.load_state_dict(m.state_dict(), assign=True)
        m.flatten_parameters()
        out.append([m(torch.ones(2, 1, 3))[0], m.double()(torch.ones(2, 1, 3).double())[0]])
    return out


@program
def copies():
    m = model()
    t = torch.ones(3, requires_grad=True)
    t.tag = 1
    c = copy.copy(t)
    return [
        copy.deepcopy(m)(X),
        vars(c),
        c,
        c.data_ptr() == t.data_ptr(),
        copy.copy(m)[0] is m[0],
        copy.copy(nn.Parameter(torch.ones(2))),
        copy.copy(Tagged(torch.ones(2))),
        copy.copy(torch.ones(2).to_sparse()),
        copy.copy(torch.ones(2, device="meta")),
    ]


@program
def pickles():
    m, t = model(), torch.ones(3)
    both = pickle.loads(pickle.dumps([t, t[1:]]))
    both[0].add_(1)
    return [pickle.loads(pickle.dumps(m))(X), both, pickle.loads(pickle.dumps(m.state_dict()))]


@program
def files():
    out = []
    for kwargs in (
        {},
        {"map_location": "cpu"},
        {"map_location": lambda s, _: s},
        {"map_location": {"cpu": "meta"}},
        {"weights_only": False},
        {"map_location": torch.device("meta")},
    ):
        file = io.BytesIO()
        t = torch.ones(3)
        torch.save({"m": model().state_dict(), "views": [t, t[1:]]}, file)
        file.seek(0)
        out.append(torch.load(file, **kwargs))
    return [out, outcome(lambda: torch.load(io.BytesIO(b"none")))]


@program
def a_script_loaded_by_torch_load():
    with tempfile.TemporaryDirectory() as folder:
        torch.jit.save(torch.jit.script(model()), f"{folder}/m.pt")
        loaded = torch.load(f"{folder}/m.pt", weights_only=False)
        return [type(loaded).__name__, loaded(X), [*inspect.signature(torch.load).parameters]]


@program
def scripts():
    m = torch.jit.script(model())
    traced = torch.jit.trace(model(), X)
    refs = [weakref.ref(p) for p in m.parameters()]
    return [m.double()(X.double()), traced.double()(X.double()), len(refs), m.half().state_dict()]


# ---- kinds of modules -----------------------------------------------------------------------


@program
def parametrizations_():
    out = []
    for f in (
        parametrizations.weight_norm,
        parametrizations.orthogonal,
        parametrizations.spectral_norm,
    ):
        m = f(nn.Linear(3, 3))
        y = m(X)
        before = list(m.parameters())
        m.double()
        same = [a is b for a, b in zip(m.parameters(), before, strict=True)]
        parametrize.remove_parametrizations(m, "weight")
        out.append([y, same, m.float()(X)])
    return out


@program
def old_weight_norm():
    m = nn.utils.weight_norm(nn.Linear(3, 3))
    y = m(X)
    m.double()
    return [y, m(X.double()), nn.utils.remove_weight_norm(m)(X.double())]


@program
def pruning():
    m = prune.l1_unstructured(nn.Linear(3, 3), "weight", 0.5)
    y = m(X)
    m.double()(X.double()).sum().backward()
    prune.remove(m, "weight")
    return [y, m.state_dict(), m.half().weight]


@program
def lazy_modules():
    m = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    optimizer = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    before = list(m.parameters())
    m.double()
    out = m(X.double())
    same = [a is b for a, b in zip(m.parameters(), before, strict=True)]
    return [out, same, trained(m, optimizer, X.double())]


@program
def averages():
    m = model()
    swa = torch.optim.swa_utils.AveragedModel(m)
    ema = torch.optim.swa_utils.AveragedModel(
        m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
    )
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    for _ in range(2):
        trained(m, optimizer)
        swa.update_parameters(m)
        ema.update_parameters(m)
    return [swa.double().state_dict(), ema.half().state_dict()]


@program
def conversion_in_forward():
    class Moves(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 2)

        def forward(self, x):
            return self.inner.to(x)(x)

    m = Moves()
    return [m(X), m(X.double()), m(X), m.inner.weight]


@program
def functional_calls():
    m = model()
    state = {k: v.detach() * 2 for k, v in m.named_parameters()}
    grads = torch.func.grad(lambda p: torch.func.functional_call(m, p, X).sum())(state)
    return [torch.func.functional_call(m, state, X), grads, stateless._reparametrize_module is None]


@program
def buffers_and_children():
    m = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5))
    before = m[0].running_mean
    m.double()
    return [m(X.double()), before, m[0].running_mean is before, m.eval()(X.double())]


@program
def meta_modules():
    with torch.device("meta"):
        m = model()
    m.to_empty(device="cpu")
    m.load_state_dict(model().state_dict())
    return [m(X), nn.utils.skip_init(nn.Linear, 2, 2).weight.shape[0]]


@program
def fake_modules():
    out, real = [], model()
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        for f in (
            lambda: real.half(),
            lambda: model().half(),
            lambda: model().to("meta"),
            lambda: model()(torch.ones(1, 3)).sum().backward(),
        ):
            out.append(outcome(lambda f=f: str(f()))[0])
    return out


@program
def exported():
    m = model()
    e = torch.export.export(m, (X,))
    inner = e.module()
    before = list(m.parameters())
    m.double()
    return [
        [a is b for a, b in zip(m.parameters(), before, strict=True)],
        m(X.double()),
        inner.double().state_dict(),
        str(e.graph),
    ]


@program
def compiled():
    def f(x):
        torch.manual_seed(1)
        return torch.rand(2) + x.sum() + copy.copy(x)[0, :2]

    m = model()
    step = torch.compile(lambda x: m(x).sum(), backend="eager")
    explained = torch._dynamo.explain(f)(X)
    return [step(X), torch.compile(f, backend="eager")(X), explained.graph_break_count]


@program
def compiled_optimizer_steps():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    out = []
    for make in (
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, 0.1),
    ):
        m = model()
        optimizer = make(m.parameters())
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(2):
            m(X).sum().backward()
            step()
        out.append(
            [list(m.parameters()), sum(torch._dynamo.utils.counters["graph_break"].values())]
        )
    return out


# ---- optimizers and training ----------------------------------------------------------------


@program
def optimizers():
    out = []
    for kind in (
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
        torch.optim.NAdam,
    ):
        m = model()
        out.append(trained(m, kind(m.parameters(), lr=0.1)))
    m = model()
    return [
        out,
        trained(m, torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True)),
        trained(m, torch.optim.Adam(m.parameters(), 0.1, fused=True)),
    ]


@program
def optimizer_made_before_a_conversion():
    m = model()
    optimizer = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    trained(m, optimizer)
    return trained(m.double(), optimizer, X.double())


@program
def optimizer_subclasses_with_their_own_groups():
    class Bare(torch.optim.SGD):
        def __init__(self, params):
            super().__init__(params, 0.1)
            for group in self.param_groups:
                del group["momentum"], group["dampening"]

        def step(self, closure=None):
            with torch.no_grad():
                for p in self.param_groups[0]["params"]:
                    p -= p.grad

    m = model()
    return trained(m, Bare(m.parameters()))


@program
def optimizer_hooks():
    m, seen = model(), []
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    trained(m, optimizer)
    return [seen, [*copy.deepcopy(optimizer).state_dict()], len(pickle.dumps(optimizer)) > 0]


@program
def gradient_of_a_gradient():
    x = X.clone().requires_grad_()
    y = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)[0]
    return [
        torch.autograd.grad(y.sum(), x),
        torch.autograd.functional.hessian(lambda t: t.pow(3).sum(), X),
    ]


@program
def checkpoints_and_saved_tensors():
    m, x = model(), X.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(m, x, use_reentrant=False).sum().backward()
    with torch.autograd.graph.save_on_cpu():
        m(x).sum().backward()
    return x.grad


@program
def backward_in_many_threads():
    ms = [model() for _ in range(4)]
    threads = [threading.Thread(target=lambda m=m: m(X).sum().backward()) for m in ms]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return [[p.grad for p in m.parameters()] for m in ms]


def _train_in_child(send: Any) -> None:
    m = model()
    send.send(outcome(lambda: trained(m, torch.optim.SGD(m.parameters(), 0.1)))[0])


@program
def backward_in_a_forked_child():
    torch.ones(2, requires_grad=True).sum().backward()
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_train_in_child, args=(send,))
    child.start()
    answer = receive.recv() if receive.poll(60) else "none"
    child.join()
    return [answer, child.exitcode]


@program
def threads_of_the_process():
    torch.ones(2, requires_grad=True).sum().backward()
    return [len(os.listdir("/proc/self/task")), threading.active_count()]


# ---- the rest -------------------------------------------------------------------------------


@program
def random_numbers():
    torch.manual_seed(3)
    a, state = torch.rand(2), torch.get_rng_state()
    b = torch.randn(2)
    torch.set_rng_state(state)
    with torch.random.fork_rng():
        torch.manual_seed(-1)
        c = torch.rand(1)
    return [
        a,
        b,
        torch.randn(2),
        c,
        torch.initial_seed(),
        outcome(lambda: torch.manual_seed(2**70))[0],
    ]


@program
def dlpack_and_numpy():
    t = torch.arange(3.0)
    u = torch.from_dlpack(t)
    u.add_(1)
    return [
        t,
        t.__dlpack_device__(),
        torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(t)),
        t.numpy().sum().item(),
        outcome(lambda: X.clone().requires_grad_().__dlpack__())[0],
    ]


@program
def prints():
    torch.set_printoptions(precision=3)
    try:
        return [
            repr(X),
            str(X.to_sparse()),
            f"{X.sum():.2f}",
            repr(nn.Parameter(X)),
            repr(X.to("meta")),
        ]
    finally:
        torch.set_printoptions(profile="default")


@program
def storages():
    t = torch.arange(4.0)
    s = t.untyped_storage()
    return [
        s.nbytes(),
        s._cdata == t[1:].untyped_storage()._cdata,
        torch._C._is_alias_of(t, t[1:]),
        t.set_(s, 1, (2,)),
        s.resize_(32).nbytes(),
        torch.empty(0).set_(t),
    ]


@program
def conjugates_and_negatives():
    t = torch.tensor([1 + 2j, 3j])
    u = torch.zeros(2, dtype=torch.complex64)
    u.data = t.conj()
    return [u.is_conj(), u.resolve_conj(), t.conj().imag.is_neg(), t.conj().imag + 1]


@program
def accelerators_and_defaults():
    return [
        torch.accelerator.is_available(),
        str(torch.get_default_device()),
        torch.cuda.is_available(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        str(torch.get_default_dtype()),
        [*torch.utils._foreach_utils._get_foreach_kernels_supported_devices()],
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.is_available(),
    ]


@program
def names_that_are_what_they_were():
    return [
        f.__qualname__ + " " + f.__module__
        for f in (
            torch.load,
            torch.save,
            torch.manual_seed,
            torch.Tensor.__repr__,
            torch.Tensor.__deepcopy__,
            torch.Tensor.__reduce_ex__,
            nn.Module._apply,
            nn.Module.load_state_dict,
            nn.Module.to,
            torch.jit.ScriptModule._apply,
            torch.utils.swap_tensors,
            torch.optim.SGD.step,
        )
    ]


# ---- PyTorch's own list of modules ----------------------------------------------------------


def module_facts(info: Any) -> Any:
    """Construct, run, convert and copy a module as PyTorch's test_modules.py does."""
    sample = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=True
    )[0]
    torch.manual_seed(1)
    m = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
    before = list(m.parameters())
    out = m.float()(*args, **kwargs)
    first = next((t for t in torch.utils._pytree.tree_leaves(out) if torch.is_tensor(t)), None)
    if first is not None and first.requires_grad:
        first.float().sum().backward()
    facts = [out, [p.grad for p in m.parameters()]]
    facts.append(outcome(lambda: m.load_state_dict(m.state_dict()))[0])
    m.double().float()
    facts.append([a is b for a, b in zip(m.parameters(), before, strict=True)])
    facts.append([p.grad for p in m.parameters()])
    facts.append(outcome(lambda: copy.deepcopy(m).state_dict())[0])
    facts.append(outcome(lambda: pickle.loads(pickle.dumps(m)).half().state_dict())[0])
    return facts


def module_programs() -> dict[str, Callable[[], Any]]:
    from torch.testing._internal.common_modules import module_db

    return {info.name: lambda info=info: module_facts(info) for info in module_db}


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "import" in sys.argv[2:]:
        import torch_pjrt  # noqa: F401
    chosen = PROGRAMS if sys.argv[1] == "programs" else module_programs()
    print("RESULT", json.dumps({name: outcome(f) for name, f in chosen.items()}))
