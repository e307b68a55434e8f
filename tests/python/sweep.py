"""Numbers among the arguments of ops, and how many programs eight values of one compile.

    python tests/python/sweep.py [OVERLOAD ...]     # a line an argument

Calls come from PyTorch's samples (OpInfo), forward and backward, and from PROGRAMS below: what
PyTorch's dispatcher calls for them on the CPU, with its tensors.
"""

import itertools
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from eager import mapped, moved, tensors_in
from test_ops import OPS, difference, ends, fallbacks
from torch.utils._python_dispatch import TorchDispatchMode

import torch_pjrt

VALUES = 8
ENOUGH = 4  # to tell one program a value from two
SAMPLES = 4  # of an OpInfo
CALLS = 3  # of an overload that are kept
TRIES = 40  # values given to eager until VALUES of them leave shapes as they are
# Integers in schemas that are no numbers but names: of a dim, of a variant.
AXES = {"dim", "dims", "dim0", "dim1", "dim2", "dimension", "axis", "unroll_dim", "sumdim"} | {
    f"expand{i}" for i in (1, 2, 3)
}
KINDS = {"reduction", "mode", "interpolation_mode", "padding_mode", "normalization", "compute_mode"}
# Eager reads memory that is not there for other values of these.
UNCHECKED = {
    "unfold_backward": {"size", "step"},
    "_ctc_loss": {"target_lengths"},
    "_ctc_loss_backward": {"target_lengths", "input_lengths", "blank"},
    "as_strided": {"size", "stride", "storage_offset"},
    "as_strided_scatter": {"size", "stride", "storage_offset"},
    "as_strided_copy": {"size", "stride", "storage_offset"},
}

Number = int | float
Place = tuple[str, int | None]  # an argument, and which element of a list


# --- calls ---------------------------------------------------------------------------------------


def kind_of(argument: Any) -> str:
    """ "int", "float", "number", "ints", "floats"; "" where it is no number."""
    text = str(argument.real_type).removeprefix("Optional[").rstrip("]").replace("SymInt", "int")
    return {"List[int": "ints", "List[float": "floats"}.get(
        text, text if text in ("int", "float", "number", "Tensor") else ""
    )


@dataclass
class Call:
    """One call of an overload, with CPU tensors; numbers left out are there by their defaults."""

    func: Any
    args: dict[str, Any]

    @property
    def name(self) -> str:
        return self.func._schema.name.removeprefix("aten::") + (
            f".{o}" if (o := self.func._schema.overload_name) else ""
        )

    def written(self) -> list[str]:
        return [
            a.name
            for a in self.func._schema.arguments
            if a.alias_info is not None and a.alias_info.is_write
        ]

    def run(self, args: dict[str, Any]) -> list[torch.Tensor]:
        """Results, then what was written. Views are copied."""
        out = list(tensors_in(self.func(**args)))
        views = any(r.alias_info is not None for r in self.func._schema.returns)
        if views:
            out = [t.clone() for t in out]
        return out + [t for name in self.written() for t in tensors_in(args[name])]

    def with_number(self, place: Place, value: Number) -> dict[str, Any]:
        name, i = place
        if i is not None:
            value = [value if k == i else v for k, v in enumerate(self.args[name])]
        return self.args | {name: value}

    def numbers(self) -> Iterator[tuple[Place, Number | None]]:
        """Every number among the arguments; None: an optional one that was not given."""
        for a in self.func._schema.arguments:
            kind, v = kind_of(a), self.args.get(a.name)
            if not kind or a.name in AXES | KINDS:
                continue
            if kind in ("ints", "floats"):
                n = len(v or [])
                yield from (((a.name, i), v[i]) for i in sorted({0, 1, n - 1}) if 0 <= i < n)
            elif v is None and kind != "Tensor":
                yield (a.name, None), None
            elif isinstance(v, int | float) and not isinstance(v, bool):
                yield (a.name, None), v

    def key(self) -> tuple[Any, ...]:
        """Calls with other keys are worth a look of their own."""
        given = tuple(v is None for v in self.args.values())
        return given + tuple(t.dtype for t in tensors_in(list(self.args.values())))


def has_numbers(schema: Any) -> bool:
    return any(
        kind_of(a) not in ("", "Tensor") and a.name not in AXES | KINDS for a in schema.arguments
    )


def bound(func: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name."""
    schema = func._schema.arguments
    out = dict(zip((a.name for a in schema), args, strict=False)) | kwargs
    for a in schema:
        if a.name not in out and kind_of(a) and a.has_default_value():
            out[a.name] = a.default_value
    return mapped(out, lambda t: t.detach().clone())


class Recorder(TorchDispatchMode):
    """Keeps a few calls of each overload that takes numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[Call]] = defaultdict(list)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "aten":
            self.note(func, args, kwargs)
        return func(*args, **kwargs)

    def note(self, func: Any, args: Any, kwargs: dict[str, Any]) -> None:
        tensors = list(tensors_in([args, kwargs]))
        if any(t.layout != torch.strided or t.is_quantized for t in tensors):
            return
        call = Call(func, bound(func, args, kwargs))
        kept = self.calls[call.name]
        if len(kept) >= CALLS or not any(True for _ in call.numbers()):
            return
        if all(call.key() != k.key() for k in kept):
            kept.append(call)


def optimizer_steps() -> None:
    """The fused steps."""
    for make in (
        lambda p: torch.optim.Adam(p, fused=True, weight_decay=0.1, amsgrad=True),
        lambda p: torch.optim.AdamW(p, fused=True),
        lambda p: torch.optim.SGD(p, lr=0.1, fused=True, momentum=0.9, weight_decay=0.1),
        lambda p: torch.optim.Adagrad(p, fused=True),
    ):
        p = torch.nn.Parameter(torch.linspace(-1, 1, 6).view(2, 3))
        step = make([p])
        for _ in range(2):
            p.grad = torch.linspace(0.5, 2, 6).view(2, 3)
            step.step()


def losses() -> None:
    """With lists of lengths."""
    p = torch.randn(6, 3, 5).log_softmax(2).requires_grad_()
    targets = torch.randint(1, 5, (3, 2))
    F.ctc_loss(p, targets, [6, 5, 4], [2, 1, 2], zero_infinity=True).backward()


def poolings() -> None:
    """With a divisor."""
    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    F.avg_pool2d(x, 2, divisor_override=3).sum().backward()
    y = torch.randn(1, 1, 4, 4, 4, requires_grad=True)
    F.avg_pool3d(y, 2, divisor_override=3).sum().backward()


def dropouts() -> None:
    x = torch.ones(4, 5, requires_grad=True)
    torch.native_dropout(x, 0.25, True)[0].sum().backward()


def scales() -> None:
    """torch.amp's."""
    scale, tracker = torch.tensor(8.0), torch.tensor(1, dtype=torch.int32)
    torch._amp_update_scale_(scale, tracker, torch.tensor(0.0), 2.0, 0.5, 4)


def resizes() -> None:
    """With a scale that the kernel goes by."""
    for mode, dims in (
        ("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 1), ("nearest-exact", 2),
        ("nearest-exact", 3), ("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2),
    ):  # fmt: skip
        x = torch.randn(1, 2, *([4] * dims), requires_grad=True)
        F.interpolate(x, scale_factor=1.6, mode=mode).sum().backward()
    for mode in ("bilinear", "bicubic"):
        x = torch.randn(1, 2, 5, 5, requires_grad=True)
        F.interpolate(x, scale_factor=0.7, mode=mode, antialias=True).sum().backward()


PROGRAMS: tuple[Callable[[], None], ...] = (
    optimizer_steps, losses, poolings, dropouts, scales, resizes,
)  # fmt: skip


def run_samples(op: Any) -> None:
    supported = op.supported_dtypes("cpu")
    wanted = (torch.float32, torch.int64, torch.complex64, torch.bool)
    dtype = next((d for d in wanted if d in supported), None)
    if dtype is None:
        return
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    torch.manual_seed(0)
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), SAMPLES):
        made, wanted = ends(op, sample)
        if made and wanted and grad:
            torch.autograd.grad([t.sum() for t in made], wanted, allow_unused=True)


def recorded(ops: Iterable[Any] = OPS.values()) -> dict[str, list[Call]]:
    """Calls by overload."""
    recorder = Recorder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with recorder:
            for program in PROGRAMS:
                torch.manual_seed(0)
                program()
            for op in ops:
                try:
                    run_samples(op)
                except Exception:  # what eager refuses is no sample
                    continue
    return {k: v for k, v in sorted(recorder.calls.items()) if v}


# --- values --------------------------------------------------------------------------------------


def whole(v: int) -> Iterator[int]:
    """v and its neighbours, then small numbers."""
    yield v
    for k in range(1, VALUES + 1):
        yield from (v + k, v - k)
    yield from range(17)


def real(v: float) -> Iterator[float]:
    """v and numbers of its size, then any."""
    yield v
    size = abs(v) if v and abs(v) != float("inf") else 1.0
    for k in range(1, VALUES):
        yield v + size * k / 8
    for k in range(1, VALUES):
        yield v - size * k / 16
    yield from (k / 8 for k in range(1, VALUES))
    yield from (k + 0.5 for k in range(1, VALUES))


def others(v: Number) -> Iterator[Number]:
    seen: set[Number] = set()
    for x in whole(v) if isinstance(v, int) else real(v):
        if x not in seen and abs(x) != float("inf"):
            seen.add(x)
            yield x


def form(tensors: list[torch.Tensor]) -> list[tuple[torch.dtype, torch.Size]]:
    return [(t.dtype, t.shape) for t in tensors]


def eager(call: Call, place: Place, v: Number) -> list[torch.Tensor] | None:
    """The results; None where eager raises."""
    torch.manual_seed(0)
    args = mapped(call.with_number(place, v), lambda t: t.clone())
    try:
        return call.run(args)
    except Exception:
        return None


def other_form(call: Call, place: Place, v: Number, wanted: Any) -> bool:
    """Do the shape functions already say that the results' shapes are others?"""
    args = mapped(call.with_number(place, v), lambda t: t.detach().to("meta"))
    args = mapped(args, lambda _: torch.device("meta"), torch.device)
    try:
        return form(call.run(args)) != wanted
    except Exception:
        return False


@dataclass
class Choice:
    """Values of one number under which the results keep their shapes, and eager's results."""

    values: list[Number] = field(default_factory=list)
    results: list[list[torch.Tensor]] = field(default_factory=list)
    shapes: int = 0  # values that give other shapes


def start_of(call: Call, place: Place, v: Number | None) -> Number | None:
    """The value to begin with; one that eager takes, of an argument that was not given."""
    if v is not None:
        return v
    kind = next(kind_of(a) for a in call.func._schema.arguments if a.name == place[0])
    starts = (1, 2) if kind == "int" else (0.75, 1.5, 2)
    return next((s for s in starts if eager(call, place, s) is not None), None)


def choose(call: Call, place: Place, given: Number | None) -> Choice:
    chosen = Choice()
    start = start_of(call, place, given)
    if start is None:
        return chosen
    wanted = None
    for v in itertools.islice(others(start), TRIES):
        # Before a kernel sees it: some do not check sizes.
        if wanted is not None and isinstance(v, int) and other_form(call, place, v, wanted):
            chosen.shapes += 1
            continue
        out = eager(call, place, v)
        if out is None:
            continue
        wanted = wanted or form(out)
        if form(out) != wanted:
            chosen.shapes += 1
            continue
        chosen.values.append(v)
        chosen.results.append(out)
        if len(chosen.values) == VALUES:
            break
    return chosen


# --- the device ----------------------------------------------------------------------------------


@dataclass
class Swept:
    """What eight values of one argument came to. `why`: "swept", or why not: "shapes" (nearly all
    values give other shapes), "few" (there are two at most), "CPU" (no program computes the op)."""

    why: str
    programs: int = 0
    values: int = 0
    wrong: str = ""


def on_device(call: Call, place: Place, v: Number) -> list[torch.Tensor]:
    args, written = call.with_number(place, v), call.written()
    for name in written:
        args[name] = mapped(args[name], lambda t: t.clone())
    out = call.run(args)
    torch_pjrt.sync()
    return out


def compared(call: Call, v: Number, ours: list[torch.Tensor], want: list[torch.Tensor]) -> str:
    if torch.Tag.nondeterministic_seeded in call.func.tags or "empty" in call.name:
        return ""
    for a, b in zip(ours, want, strict=True):
        if form([a]) != form([b]):
            return f"at {v}: {form([a])}, eager: {form([b])}"
        if wrong := difference(a.cpu(), b, 2e-4 if b.dtype.is_floating_point else 1e-4):
            return f"at {v}: {wrong}"
    return ""


def sweep(call: Call, place: Place, chosen: Choice) -> Swept:
    if len(chosen.values) <= 2:
        return Swept("shapes" if chosen.shapes else "few", values=len(chosen.values))
    there = mapped(moved(call.args), lambda _: torch.device("xla"), torch.device)
    call = Call(call.func, there)
    torch_pjrt.sync(wait=True)
    before, first, wrong = fallbacks(), torch_pjrt.metrics.compiles(), ""
    torch.use_deterministic_algorithms(True)  # programs only: nothing is interpreted
    try:
        ours = [on_device(call, place, v) for v in chosen.values]
    except Exception as e:
        ours, wrong = [], f"{type(e).__name__}: {str(e).splitlines()[0]}"
    finally:
        torch.use_deterministic_algorithms(False)
    torch_pjrt.sync(wait=True)
    programs = torch_pjrt.metrics.compiles() - first
    if fallbacks() != before:
        return Swept("CPU", values=len(chosen.values))
    for v, a, b in zip(chosen.values, ours, chosen.results, strict=False):
        wrong = wrong or compared(call, v, a, b)
    return Swept("swept", programs, len(chosen.values), wrong)


def better(a: Swept, b: Swept | None) -> bool:
    """Does a say more than b, of another call?"""
    rank = ("few", "shapes", "CPU", "swept")
    if b is None:
        return True
    worse = (bool(a.wrong), a.programs) > (bool(b.wrong), b.programs)
    return (rank.index(a.why), a.values, worse) > (rank.index(b.why), b.values, False)


def size_of(call: Call) -> int:
    return sum(t.numel() for t in tensors_in(list(call.args.values())))


def best_call(calls: list[Call], place: Place) -> tuple[Call, Choice] | None:
    """The smallest call under which enough values of that number keep the shapes, else most."""
    found: tuple[Call, Choice] | None = None
    for call in sorted(calls, key=size_of):
        numbers = dict(call.numbers())
        if place not in numbers:
            continue
        chosen = choose(call, place, numbers[place])
        if found is None or len(chosen.values) > len(found[1].values):
            found = call, chosen
        if len(chosen.values) >= ENOUGH:
            break
    return found


def sweep_op(calls: list[Call]) -> dict[str, Swept]:
    """By argument; of a list that element which took most programs."""
    out: dict[str, Swept] = {}
    skipped = UNCHECKED.get(calls[0].name.split(".")[0], set())
    for place in dict.fromkeys(p for c in calls for p, _ in c.numbers()):
        if place[0] in skipped:
            continue
        if (found := best_call(calls, place)) is None:
            continue
        result = sweep(found[0], place, found[1])
        if better(result, out.get(place[0])):
            out[place[0]] = result
    return out


def main(wanted: list[str]) -> None:
    """A line an argument: "softplus:beta swept 1 8", then what differs from eager."""
    calls = recorded()
    for name in wanted or calls:
        for argument, s in sweep_op(calls[name]).items():
            wrong = " ".join(s.wrong.split())[:200]
            print(f"{name}:{argument} {s.why} {s.programs} {s.values} {wrong}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
