"""PyTorch's own samples (OpInfo) for every op that has a lowering: eager's values, dtypes, strides.

An op whose call runs on the CPU instead (counter `aten::...`) has to be listed in known_gaps.toml.
All samples and dtypes of a few neighbouring ops share one sync, hence one program: a compile costs
more than what is in it. More dtypes, samples and forms: conformance.py, `make nightly`.
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import gaps
import pytest
import torch
from eager import TOLERANCE, mapped, tensors_in
from torch.testing._internal.common_methods_invocations import op_db

import torch_pjrt

SAMPLES = {"f32": 2}  # how many of each kind; one more at night
OTHER_SAMPLES = 1
GROUP = 8  # ops that share a program
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool]
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int64: "s64", torch.bool: "pred"}
UNDEFINED = ("empty", "new_empty", "resize")  # ops whose values eager leaves undefined
TIES = ("sort", "argsort", "topk", "kthvalue")  # eager does not say which of equal elements comes
LOOSE = {"f32": 2e-4, "backward": 2e-4, "bf16": 4e-2}  # sums of many terms in another order
# Where eager's own distance from the result in a wider dtype is as large as this.
INEXACT = {"logcumsumexp/backward": 5e-3, "grid_sampler_2d/bf16": 0.15, "grid_sampler_3d/bf16": 0.1}
# Ops whose samples ask for what no device but the CPU has.
CPU_ONLY = {
    "as_strided.partial_views": "reads memory around its argument",
    "sparse.sampled_addmm": "takes sparse tensors",
    "sparse.mm.reduce": "takes sparse tensors",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu": "is a CPU kernel",
}


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


XLA = torch.device("xla")
OPS = {full_name(op): op for op in op_db if full_name(op) not in CPU_ONLY}
GAPPED = {k.split("/")[0] for k in gaps.cases("ops")}


def fallbacks() -> int:
    return sum(n for k, n in torch_pjrt.metrics.counters().items() if k.startswith("aten::"))


def uploaded(x: torch.Tensor) -> torch.Tensor:
    """The tensor on the device, with its strides where they are dense; leaves stay leaves."""
    return x.detach().to("xla").requires_grad_(x.requires_grad)


def on_device(
    x: Any,
    tensor: Callable[[torch.Tensor], torch.Tensor] = uploaded,
    device: torch.device = XLA,
) -> Any:
    """Arguments for the device; tensors as `tensor` moves them."""

    def leaf(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return tensor(v)
        return device if isinstance(v, torch.device) or v == "cpu" else v

    return mapped(x, leaf, torch.Tensor | torch.device | str)


@dataclass
class Case:
    """One call on both devices."""

    name: str
    ours: list[torch.Tensor] = field(default_factory=list)
    eager: list[torch.Tensor] = field(default_factory=list)
    random: bool = False
    error: str = ""


def weights(t: torch.Tensor) -> torch.Tensor:
    """A gradient for t whose elements differ."""
    return torch.linspace(0.5, 1.5, t.numel()).to(t.dtype).view(t.shape).to(t.device)


def ends(op: Any, sample: Any) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The results of a call and the operands that have gradients."""
    out = op(sample.input, *sample.args, **sample.kwargs)
    made = tensors_in(sample.output_process_fn_grad(out))
    operands = tensors_in([sample.input, sample.args, sample.kwargs])
    return [t for t in made if t.requires_grad], [t for t in operands if t.requires_grad]


def run(op: Any, sample: Any, grad: bool) -> list[torch.Tensor]:
    if not grad:
        return list(tensors_in(op(sample.input, *sample.args, **sample.kwargs)))
    made, wanted = ends(op, sample)
    if not made or not wanted:
        return []
    found = torch.autograd.grad(made, wanted, [weights(t) for t in made], allow_unused=True)
    return [g for g in found if g is not None]


class Moved:
    """A sample with its arguments on the device."""

    def __init__(self, s: Any, tensor: Callable[[torch.Tensor], torch.Tensor] = uploaded) -> None:
        self.input, self.args, self.kwargs = on_device([s.input, s.args, s.kwargs], tensor)
        self.output_process_fn_grad = s.output_process_fn_grad


def kind_of(dtype: torch.dtype, grad: bool) -> str:
    return "backward" if grad else NAMES[dtype]


def samples(op: Any, dtype: torch.dtype, grad: bool, more: int) -> Iterator[Any]:
    if full_name(op) in GAPPED:
        more = 8  # a gap has to show, daily too
    torch.manual_seed(0)
    made = op.sample_inputs("cpu", dtype, requires_grad=grad)
    return itertools.islice(made, SAMPLES.get(kind_of(dtype, grad), OTHER_SAMPLES) + more)


def cases_of(op: Any, dtype: torch.dtype, grad: bool, more: int) -> Iterator[Case]:
    """Cases recorded but not run; stops where the op runs on the CPU."""
    for i, sample in enumerate(samples(op, dtype, grad, more)):
        case = Case(kind_of(dtype, grad))
        before = fallbacks()
        try:
            case.eager = [t.detach() for t in run(op, sample, grad)]
        except Exception:
            continue  # eager itself refuses
        torch.manual_seed(1)
        state = torch.xla.get_rng_state()
        try:
            case.ours = [t.detach() for t in run(op, Moved(sample), grad)]
        except Exception as e:
            case.error = f"sample {i}: {type(e).__name__}: {str(e).splitlines()[0]}"
        if fallbacks() != before:
            return
        if "to be on cpu" in case.error:
            continue  # PyTorch wants this argument on the CPU
        case.random = not torch.equal(torch.xla.get_rng_state(), state)
        yield case


def difference(a: torch.Tensor, b: torch.Tensor, tol: float) -> str:
    """What assert_close says, with a tolerance that grows with the tensor's largest number."""
    scale = 1.0
    if not b.is_floating_point() and not b.is_complex():
        tol = 0.0
    elif (finite := b[b.isfinite()].abs()).numel():
        scale = max(1.0, finite.max().item())
    try:
        torch.testing.assert_close(a, b, rtol=tol, atol=tol * scale, equal_nan=True)
    except Exception as e:
        return " ".join(str(e).split())[:300]
    return ""


def compare(case: Case, name: str) -> str:
    """What is wrong with a case that has been run; empty where nothing is."""
    if case.error:
        return case.error
    if len(case.ours) != len(case.eager):
        return f"{len(case.ours)} results, eager has {len(case.eager)}"
    for a, b in zip(case.ours, case.eager, strict=True):
        if a.device.type != "xla":
            return f"result on {a.device}"
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"{a.dtype} {list(a.shape)}, eager: {b.dtype} {list(b.shape)}"
        if case.name == "f32" and a.stride() != b.stride() and a.numel() > 1:
            return f"strides {a.stride()}, eager: {b.stride()}"
        if case.random or name.startswith(UNDEFINED):
            continue
        if name in TIES and case.name != "f32" and b.dtype == torch.int64:
            continue
        tol = max(
            LOOSE.get(case.name, 0),
            TOLERANCE.get(b.real.dtype if b.is_complex() else b.dtype, 0),
            INEXACT.get(f"{name}/{case.name}", 0),
        )
        if wrong := difference(a.cpu(), b, tol):
            return wrong
    return ""


def kinds_of(op: Any) -> list[tuple[torch.dtype, bool]]:
    """(dtype, whether of the gradient) of what is tried of an op."""
    supported = op.supported_dtypes("cpu")
    kinds = [(d, False) for d in DTYPES if d in supported]
    if op.supports_autograd and torch.float32 in supported:
        kinds.append((torch.float32, True))
    return kinds


def verdicts(names: list[str], more: int) -> dict[str, dict[str, str]]:
    """Op -> kind ("f32", "backward") -> what is wrong, empty where all is well; kinds that ran."""
    cases = {n: [c for k in kinds_of(OPS[n]) for c in cases_of(OPS[n], *k, more)] for n in names}
    failed = ""
    try:
        torch_pjrt.sync()
    except Exception as e:
        failed = str(e).splitlines()[0]
    if failed and len(names) > 1:  # whose fault it is
        return {n: verdicts([n], more)[n] for n in names}
    found: dict[str, dict[str, str]] = {n: {"sync": failed} if failed else {} for n in names}
    for name in names:
        for c in cases[name]:
            wrong = compare(c, OPS[name].name)
            found[name][c.name] = found[name].get(c.name) or wrong
    return found


@pytest.fixture(scope="module")
def tried(request) -> Callable[[str], dict[str, str]]:
    """The verdicts on an op; those on the next few that are asked for are found with it."""
    more = int(request.config.getoption("--nightly"))
    mine = [i for i in request.session.items if i.path == request.path and hasattr(i, "callspec")]
    names = list(dict.fromkeys(i.callspec.params["name"] for i in mine if "name" in i.fixturenames))
    found: dict[str, dict[str, str]] = {}

    def verdict(name: str) -> dict[str, str]:
        if name not in found:
            at = names.index(name)
            found.update(verdicts(names[at : at + GROUP], more))
        return found[name]

    return verdict


@pytest.mark.parametrize("name", OPS)
@pytest.mark.filterwarnings("ignore")
def test_op_agrees_with_eager(name, tried):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tried(name)
    if name in gaps.listed("no_lowering"):
        assert not found, f"has a lowering now: take {name} out of [no_lowering] in known_gaps.toml"
        pytest.skip("no lowering: runs on the CPU")
    assert found, "runs on the CPU, though it is not in [no_lowering] of known_gaps.toml"
    known = {k.split("/")[1]: k for k in gaps.cases("ops") if k.split("/")[0] == name}
    wrong = {k: v for k, v in found.items() if v and k not in known}
    assert not wrong, "\n".join(f"{name}/{k}: {v}" for k, v in wrong.items())
    fixed = [key for k, key in known.items() if not found.get(k)]
    assert not fixed, f"passes now: take {fixed} out of [ops] in known_gaps.toml"


def test_known_gaps_name_ops():
    assert {k.split("/")[0] for k in gaps.cases("ops")} <= set(OPS)
    assert gaps.listed("no_lowering") <= set(OPS)
