"""Checks one OpInfo in all its forms: the child's half of conformance.py.

All calls of an op are recorded first and share one sync, so an op costs few programs; where that
sync fails each result is read alone.
"""

import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
import modes
from eager import TOLERANCE, moved, tensors_in
from test_ops import (
    INEXACT,
    LOOSE,
    OPS,
    TIES,
    UNDEFINED,
    Moved,
    difference,
    fallbacks,
    on_device,
    run,
    uploaded,
)

import torch_pjrt

SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.complex64: "c64", torch.complex128: "c128", torch.bool: "pred", torch.uint8: "u8",
    torch.int8: "s8", torch.int16: "s16", torch.int32: "s32", torch.int64: "s64",
}  # fmt: skip
# Tried where eager has no kernel for them: ours has to refuse them too, not to compute or to crash.
REFUSED = (torch.bool, torch.uint8, torch.int32, torch.float16, torch.complex64)
ROUGH = {torch.float16: 1e-2, torch.complex64: 2e-4}  # sums of many terms in another order
DERIVED = {"double backward": 5e-4, "jvp": 5e-4}  # of f32: products of several rounded factors

# Where eager's own result is not right.
WRONG_IN_EAGER = {
    ("nn.functional.max_pool1d", "lazy bits"): "reads the memory of a negated view as it is",
}
MODES = 2  # samples of a call under a mode or a transform
ONCE = {*modes.FORMS, "double backward"}


@dataclass
class Call:
    """One call on both sides; `ours` are tensors on the device or what was raised."""

    form: str
    dtype: torch.dtype
    eager: Any
    ours: Any
    random: bool = False
    cut: bool = False
    error: bool = False  # the call has to raise


def raised(f: Callable[[], Any]) -> Any:
    """What f gives, or the exception it raises."""
    try:
        return f()
    except Exception as e:
        return e


def outputs(op: Any, s: Any) -> list[torch.Tensor]:
    return run(op, s, grad=False)


def gradients(op: Any, s: Any) -> list[torch.Tensor]:
    return run(op, s, grad=True)


def into(op: Any, s: Any) -> list[torch.Tensor]:
    """The call with `out=` of the results' own shapes."""
    plain = op(s.input, *s.args, **s.kwargs)
    blank = [torch.empty_like(t) for t in tensors_in(plain)]
    target = blank[0] if isinstance(plain, torch.Tensor) else tuple(blank)
    op(s.input, *s.args, **s.kwargs, out=target)
    return blank


def in_place(op: Any, s: Any) -> list[torch.Tensor]:
    x = s.input.clone()
    return [op.inplace_variant(x, *s.args, **s.kwargs), x]


def forms_of(op: Any, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[Any, Any], Any]]]:
    yield "call", outputs
    if dtype in (torch.float32, torch.int64, torch.complex64):
        yield "strided", outputs
        if op.supports_out:
            yield "out", into
        if op.inplace_variant is not None:
            yield "inplace", in_place
    if dtype in (torch.float32, torch.complex64):
        yield from modes.FORMS.items()
    if op.supports_autograd and dtype in (torch.float32, torch.complex64):
        yield "backward", gradients
        yield "double backward", modes.double_backward


def host_ops() -> int:
    return sum(n for k, n in torch_pjrt.metrics.counters().items() if k.startswith("hostop::"))


def keeping_aliases() -> Callable[[torch.Tensor], torch.Tensor]:
    """Moves tensors so that those which share memory share it on the device too."""
    seen: dict[int, torch.Tensor] = {}

    def move(t: torch.Tensor) -> torch.Tensor:
        memory = t.untyped_storage()
        if t.numel() == 0 or memory.nbytes() % t.element_size():
            return uploaded(t)
        base = seen.get(memory.data_ptr())
        if base is None:
            base = torch.empty(0, dtype=t.dtype).set_(memory).detach().to("xla")
            seen[memory.data_ptr()] = base
        if base.dtype != t.dtype:
            return uploaded(t)
        return base.as_strided(t.size(), t.stride(), t.storage_offset())

    return move


def both(form: str, dtype: torch.dtype, call: Any, op: Any, s: Any) -> Call | None:
    if form == "strided":
        s = s.noncontiguous()
    eager = raised(lambda: call(op, s))
    if isinstance(eager, Exception):
        return None  # the form does not fit this sample
    torch.manual_seed(1)
    state, before = torch.xla.get_rng_state(), fallbacks()
    ours = raised(lambda: call(op, Moved(s, moved if form == "strided" else uploaded)))
    if isinstance(ours, Exception) and "to be on cpu" in str(ours):
        return None  # PyTorch wants this argument on the CPU
    return Call(form, dtype, eager, ours, not torch.equal(torch.xla.get_rng_state(), state),
                fallbacks() != before)  # fmt: skip


def calls_of(op: Any, count: int) -> Iterator[Call]:
    for dtype in SHORT:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for form, call_form in forms_of(op, dtype):
            torch.manual_seed(0)
            try:
                made = op.sample_inputs("cpu", dtype, requires_grad=form.endswith("backward"))
                made = list(itertools.islice(made, min(count, MODES) if form in ONCE else count))
            except Exception:
                continue  # no samples of this dtype
            for s in made:
                if call := both(form, dtype, call_form, op, s):
                    yield call
    yield from refused_calls(op)
    yield from error_calls(op)


def cast(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: t.detach().to(dtype) if t.dtype == torch.float32 else t.detach()


def refused_calls(op: Any) -> Iterator[Call]:
    """Calls in dtypes that eager has no kernel for."""
    if torch.float32 not in op.supported_dtypes("cpu"):
        return
    torch.manual_seed(0)
    try:
        s = next(iter(op.sample_inputs("cpu", torch.float32)))
    except Exception:
        return  # no samples
    for dtype in set(REFUSED) - set(op.supported_dtypes("cpu")):
        args = on_device([s.input, s.args, s.kwargs], cast(dtype), torch.device("cpu"))
        eager = raised(lambda a=args: op(a[0], *a[1], **a[2]))
        if not isinstance(eager, Exception):
            continue
        args = on_device(args)
        ours = raised(lambda a=args: [t.cpu() for t in tensors_in(op(a[0], *a[1], **a[2]))])
        yield Call("refused", dtype, eager, ours, error=True)


def error_calls(op: Any) -> Iterator[Call]:
    if op.error_inputs_func is None:
        return
    for bad in op.error_inputs("cpu"):
        s = bad.sample_input
        if any(t.device.type != "cpu" for t in tensors_in([s.input, s.args, s.kwargs])):
            continue  # tensors of other devices stay what they are
        eager = raised(lambda s=s: outputs(op, s))
        if not isinstance(eager, Exception):
            continue
        ours = raised(lambda s=s: [t.cpu() for t in outputs(op, Moved(s, keeping_aliases()))])
        yield Call("errors", torch.float32, eager, ours, error=True)


def wrong(c: Call, op: Any) -> str:
    if c.error:
        if type(c.ours) is type(c.eager):
            return ""
        got = c.ours if isinstance(c.ours, Exception) else "no error"
        ours, eager = (f"{type(e).__name__} ({str(e)[:80]})" for e in (got, c.eager))
        return f"{ours}, eager: {eager}"
    if isinstance(c.ours, Exception):
        return f"{type(c.ours).__name__}: {str(c.ours).splitlines()[0] if str(c.ours) else ''}"
    if len(c.ours) != len(c.eager):
        return f"{len(c.ours)} results, eager has {len(c.eager)}"
    for a, b in zip(c.ours, c.eager, strict=True):
        if w := differs(a.detach(), b.detach(), c, op):
            return w
    return ""


def differs(a: torch.Tensor, b: torch.Tensor, c: Call, op: Any) -> str:
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return f"{a.dtype} {list(a.shape)}, eager: {b.dtype} {list(b.shape)}"
    if a.device.type != "xla":
        return f"result on {a.device}"
    if c.form in ("call", "strided") and a.stride() != b.stride() and a.numel() > 1:
        return f"strides {a.stride()}, eager: {b.stride()}"
    if (op.name, c.form) in WRONG_IN_EAGER:
        return ""
    if c.random or op.name.startswith(UNDEFINED) or (op.name in TIES and b.dtype == torch.int64):
        return ""
    kind = "backward" if c.form.endswith("backward") else SHORT[c.dtype]
    tol = max(
        DERIVED.get(c.form, 0),
        LOOSE.get(kind, 0),
        TOLERANCE.get(b.real.dtype if b.is_complex() else b.dtype, 0),
        ROUGH.get(b.dtype, 0),
        INEXACT.get(f"{op.name}/{kind}", 0),
    )
    got = raised(lambda: a.cpu())
    if isinstance(got, Exception):
        return f"{type(got).__name__}: {str(got).splitlines()[0]}"
    return difference(got, b, tol)


def check(name: str, count: int) -> dict[str, Any]:
    """{"how", "dtypes", "forms": {form: [right, tried]}, "wrong": {"form dtype": why}}"""
    op, hosts = OPS[name], host_ops()
    calls = list(calls_of(op, count))
    raised(torch_pjrt.sync)
    forms: dict[str, list[int]] = {}
    bad: dict[str, str] = {}
    for c in calls:
        why = wrong(c, op)
        right, tried = forms.get(c.form, [0, 0])
        forms[c.form] = [right + (not why), tried + 1]
        if why:
            bad.setdefault(f"{c.form} {SHORT[c.dtype]}", why[:400])
    cut = any(c.cut for c in calls)
    how = "cut" if cut else "host" if host_ops() != hosts else "native"
    return {"how": how if calls else "none", "dtypes": len({c.dtype for c in calls}),
            "forms": forms, "wrong": bad}  # fmt: skip


def answer(name: str, count: int) -> dict[str, Any]:
    try:
        return check(name, count)
    except Exception as e:  # of OpInfo's own code, mostly
        return {"wrong": {"check": f"{type(e).__name__}: {e}"}, "forms": {}}


def serve(count: int) -> None:
    """Answers each op's name on standard input with a line of JSON on standard output."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what ops print must not mix with the answers
    print(json.dumps({"ready": list(OPS)}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(line.strip(), count)), file=answers, flush=True)
