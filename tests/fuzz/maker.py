"""Makes random programs: each statement is tried on the CPU while the program grows.

Values start as small multiples of a half, so that most results have the same bits everywhere.
What may be rounded is marked (by storage, as views share it), and is kept away from statements
that jump.
"""

import re
from dataclasses import replace
from typing import Any

import rules
import torch
from hypothesis import strategies as st
from programs import RTOL, Run, Statement, check

MAKING = "unary jumpy rough reduce binary rough_binary jumpy_binary index view"  # a new tensor
MODE_IN = 24  # one of so many statements runs under a mode
MODES = ["torch.inference_mode()", "default(torch.float64)", "torch.no_grad()"]
ACTING = "write jumpy_write rough_write read jumpy_read sync grad other"
KINDS = {name: rules.split(getattr(rules, name.upper())) for name in f"{MAKING} {ACTING}".split()}
SHARES = {
    "unary": 10, "jumpy": 7, "rough": 5, "reduce": 5, "binary": 8, "rough_binary": 2,
    "jumpy_binary": 3, "index": 4, "view": 22, "write": 24, "jumpy_write": 3, "rough_write": 3,
    "read": 3, "jumpy_read": 1, "sync": 5, "grad": 5, "other": 5,
}  # fmt: skip
KIND_LIST = [k for k, share in SHARES.items() for _ in range(share)]
CHANGING = {"write", "jumpy_write", "rough_write", "grad"}
KINKY = re.compile(r"relu|abs|clamp|max|min|hard|leaky|thresh|shrink|elu|norm\(1|renorm|cdist|med")
CASTS = re.compile(
    r"fill_\(\{b|int|long|type_as|\.to\(\{b|copy_|out=|= \{b|one_hot|embedding|tensor\(|masked_s"
)
RESHAPING = ("t_(", "squeeze_(", "transpose_(", "swapaxes_(", "detach_(", "resize_")
# Eager writes through these into expanded tensors, in no order.
IN_NO_ORDER = re.compile(r"\] = |tri[lu]_\(|arange|_like\(.*out=")
# These read the sign of a nan, these of a zero.
NAN_SIGNS = re.compile(r"signbit|copysign|view\(torch\.(int32|uint8)\)")
ZERO_SIGNS = re.compile(NAN_SIGNS.pattern + r"|atan2|reciprocal|/ \{b\}")
SHOWN = re.compile(r"str\(|repr\(")
# Which side of a complex function's branch cut a number is on: the sign of a zero says it.
CUTS = re.compile(r"sqrt|log|angle|pow|acos|asin|atan")
# Beyond these a float's sums and products may be rounded: dtype -> (largest, finest).
WINDOW = {torch.float16: (16, 0.25), torch.bfloat16: (8, 0.5)}
DTYPES = [torch.float32] * 8 + [torch.float64, torch.float16, torch.bfloat16, torch.int64] * 2
DTYPES += [torch.int32, torch.uint8, torch.int8, torch.bool, torch.complex64]
SHAPES = [(4, 6), (3, 4), (6,), (), (2, 3, 4), (4, 4), (1, 6), (4, 1), (0, 3), (2, 1, 3), (5,)]
MOST = 300  # elements


def storage(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def overlaps_itself(t: torch.Tensor) -> bool:
    """Whether two elements share memory in a way that eager does not refuse to write into."""
    for d, (s, n) in enumerate(zip(t.stride(), t.shape, strict=True)):
        if s == 0 and n > 1:  # refused, but not in a part that is one deep there
            t = t.narrow(d, 0, 1)
    if not t.numel():
        return False
    places = torch.zeros(1, dtype=torch.long)
    for n, s in zip(t.shape, t.stride(), strict=True):
        places = (places[:, None] + torch.arange(n) * s).flatten()
    return places.unique().numel() != places.numel()


def finite(t: torch.Tensor) -> bool:
    return bool(t.detach().isfinite().all())


def real_parts(t: torch.Tensor) -> torch.Tensor:
    t = t.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(t) if t.is_complex() else t


def in_window(t: torch.Tensor) -> bool:
    """Whether sums and products of such values are exact."""
    if not (t.is_floating_point() or t.is_complex()):
        return True
    largest, finest = WINDOW.get(t.dtype, (64, 0.125))
    v = real_parts(t).double()
    v = v[v.isfinite()]
    return bool((v.abs() <= largest).all() and (v / finest == (v / finest).round()).all())


def has_zeros(t: torch.Tensor) -> bool:
    return differentiable(t) and bool((real_parts(t) == 0).any())


def has_negative_zeros(t: torch.Tensor) -> bool:
    return differentiable(t) and bool(((v := real_parts(t)) == 0).logical_and(v.signbit()).any())


def differentiable(t: torch.Tensor) -> bool:
    """Eager lets integers require gradients, if these come in by a write."""
    return t.is_floating_point() or t.is_complex()


def not_compared(template: str, a: torch.Tensor) -> bool:
    """Where ours differs on purpose, or eager's answer is a slip of its own (docs/fuzz.md)."""
    if "histc" in template:  # ours takes integers too, as libraries ask of devices
        return not a.is_floating_point()
    if "gelu" in template:  # eager's vectors give nan at infinity
        return not finite(a)
    if "view(torch." in template:  # writes could make bools that are neither
        return a.dtype == torch.bool
    if ".take(" in template or ".put(" in template:  # indices out of range do not raise
        return a.numel() < 2
    if "softshrink" in template:  # eager's vectors give 0.0 where its last elements are -0.0
        return a.dtype == torch.float64
    if "max_pool1d" in template:  # eager pools what a lazily negated tensor was before
        return a.is_neg()
    if "isin" in template:  # eager asks for a view that strides do not always allow
        return not a.is_contiguous()
    memory, item = a.untyped_storage().nbytes(), a.element_size()
    if "resize_(" in template:  # what it adds is not initialised
        return (a.storage_offset() + a.numel()) * item > memory
    if "as_strided" in template:  # some losses leave memory behind that no tensor shows
        root = a if a._base is None else a._base
        return memory > root.numel() * root.element_size()
    expanded = any(s == 0 and n > 1 for s, n in zip(a.stride(), a.shape, strict=True))
    return expanded and IN_NO_ORDER.search(template) is not None


class Maker:
    """A program that grows, and the state of its CPU run."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.run = Run("cpu")
        self.statements: list[Statement] = []
        self.rounded: dict[int, float] = {}  # storages that may be rounded: tolerances
        self.kept: list[torch.Tensor] = []  # storages stay alive, so that their ids stay theirs
        self.turned: set[int] = set()  # storages of views that were turned in place
        self.rounded_notes: dict[str, float] = {}
        self.scale, self.errors, self.names = 1.0, 0, 0

    def below(self, n: int) -> int:
        return self.draw(st.integers(0, max(n - 1, 0)))

    def number(self) -> str:
        return self.draw(st.sampled_from(["1", "2", "0.5", "-1.5", "3", "-2", "0", "True"]))

    # ---- statements -----------------------------------------------------------------------------

    def create(self) -> None:
        """A new tensor of small numbers."""
        dtype, shape = self.draw(st.sampled_from(DTYPES)), self.draw(st.sampled_from(SHAPES))
        numel, start, twist = torch.Size(shape).numel(), self.below(5), self.below(6)
        kind = str(dtype)
        text = f"((torch.arange({numel}, device=dev) * {1 + 2 * twist} + {start}) % 11"
        text += ")" if dtype in (torch.uint8, torch.bool) else " - 4)"
        text = f"({text} / 2)" if dtype.is_floating_point else text
        text += f".to({kind}).view({shape})"
        if twist == 5 and len(shape) > 1:
            text += ".mT.contiguous().mT"
        if twist == 4 and dtype.is_floating_point and numel:
            special = self.draw(st.sampled_from(["float('nan')", "float('inf')", "-0.0"]))
            text += f".index_fill(0, torch.tensor([0], device=dev), {special})" if shape else ""
        if dtype.is_floating_point and self.below(3) == 0:
            text += ".clone().requires_grad_()"  # no view: see docs/fuzz.md
        self.add(Statement(f"{self.fresh()} = {text}", True, "create"))

    def fresh(self) -> str:
        self.names += 1
        return f"t{self.names - 1}"

    def holes(self, a: torch.Tensor) -> dict[str, Any]:
        """Values for the holes of a statement about a."""
        rank = max(a.dim(), 1)
        d = self.below(rank)
        size = a.shape[d] if a.dim() else 1
        picks = [0]
        size = min([size, *a.shape[:1], *a.shape[-1:]])  # whatever dim the statement indexes
        if 0 < size < 9:
            picks = self.draw(st.permutations(range(size)))[: 1 + self.below(2)]
        n = a.numel()
        shapes = [(n,), (-1, 2), (2, -1), (1, n), (n, 1), (3, -1), (2, 2, -1), ()]
        return {
            "d": d if self.below(3) else d - rank, "e": self.below(rank), "k": self.below(4),
            "n": self.number(), "m": self.below(size), "p": list(picks),
            "s": self.draw(st.sampled_from(shapes)),
        }  # fmt: skip

    def statement(self) -> None:
        """One more statement, if what is drawn is well defined."""
        kind = self.draw(st.sampled_from(KIND_LIST))
        template = self.draw(st.sampled_from(KINDS[kind]))
        tensors = self.run.tensors()
        names = list(tensors)
        used = [names[-1 - self.below(len(names))], names[-1 - self.below(len(names))]]
        a, b = (tensors[x] for x in used)
        if "{b}" not in template:
            used = used[:1]
        if not self.defined(kind, template, [tensors[x] for x in used]):
            return
        text = template.format(a=used[0], b=used[-1], t="{t}", **self.holes(a))
        new = kind in MAKING.split()
        if new or "{t}" in text:
            target = names[self.below(len(names))] if self.below(12) == 0 else self.fresh()
            text = f"{target} = {text}" if new else text.format(t=target)
        if self.below(MODE_IN) == 0:
            mode = self.draw(st.sampled_from(MODES))
            if "inference" not in mode or "requires_grad_" not in text:  # docs/fuzz.md
                text = f"with {mode}: {text}"
        exact = not kind.startswith("rough") and kind != "grad"
        del a, b, tensors  # the program alone keeps its tensors alive
        self.add(Statement(text, exact, kind, tuple(used)))

    def defined(self, kind: str, template: str, used: list[torch.Tensor]) -> bool:
        """Whether eager's answer is one that everybody must give."""
        rough = any(storage(t) in self.rounded for t in used)
        if rough and (kind.startswith("jumpy") or "view(torch." in template):  # bits jump too
            return False
        if rough and KINKY.search(template) and any(t.requires_grad for t in used):
            return False
        if "F.embedding" in template and used[1].dim() and used[1].shape[0] < 2:
            return False  # an index that was computed is out of range
        if kind in CHANGING and self.seen_as_bits(used[0]):
            return False
        if len(used) > 1 and torch.result_type(*used) == torch.complex32:
            return False
        if CASTS.search(template) and not all(self.casts_well(t) for t in used):
            return False
        if kind in CHANGING and overlaps_itself(used[0]):
            return False
        if kind in CHANGING and not differentiable(used[0]) and used[-1].requires_grad:
            return False
        if not_compared(template, used[0]):
            return False
        if kind in CHANGING and storage(used[0]) in self.turned and used[-1].requires_grad:
            return False  # the turned view is replayed as it was made: docs/fuzz.md
        if NAN_SIGNS.search(template) and any(bool(t.detach().isnan().any()) for t in used):
            return False
        if ZERO_SIGNS.search(template) and any(has_zeros(t) for t in used):
            return False
        if SHOWN.search(template) and any(has_negative_zeros(t) for t in used):
            return False  # of -0.0 and 0.0, eager's vectors and its last elements pick two minima
        if CUTS.search(template) and any(t.is_complex() and has_zeros(t) for t in used):
            return False
        if "quantile" in template and used[0].requires_grad:  # of equal ones, which gets it?
            return False
        if "requires_grad_" in template and used[0]._is_view():
            return False  # a leaf that is a view: docs/fuzz.md
        resizes = any(x in template for x in (*RESHAPING, "zeros(2, 3, out", "arange(6, out"))
        if resizes and used[0].requires_grad:
            return False  # views of it lose their place in the graph
        if "set_(" in template or ".data = " in template:  # views of it would replay on new memory
            return not any(t.requires_grad for t in used)
        if "out=" in template and any(0 in t.shape for t in used):  # which error comes first?
            return False
        if "index_" in template and 0 in used[0].shape:  # eager's error is an accident of resizing
            return False
        shared = len(used) > 1 and storage(used[0]) == storage(used[1])
        return not (shared and "out=" in template)

    def seen_as_bits(self, t: torch.Tensor) -> bool:
        """Whether floats share the memory with another type: ints there are subnormal."""
        return any(
            storage(u) == storage(t)
            and u.dtype != t.dtype
            and (differentiable(u) or differentiable(t))
            for u in self.run.tensors().values()
        )

    def casts_well(self, t: torch.Tensor) -> bool:
        """Whether the values have one meaning in every integer type."""
        if storage(t) in self.rounded and not all(
            u.is_floating_point() for u in self.run.tensors().values()
        ):
            return False
        v = real_parts(t)
        return not v.is_floating_point() or bool(((v >= 0) & (v < 100)).all())

    # ---- keeping ---------------------------------------------------------------------------------

    def add(self, s: Statement) -> None:
        """Runs it on the CPU, and keeps it if it is worth it."""
        s = replace(s, drop="")  # a smaller program may not fail here
        before, kind, used = self.run.tensors(), s.kind, s.used
        rough = not s.exact or any(storage(before[x]) in self.rounded for x in used)
        wild = any(not finite(before[x]) for x in used)
        notes = len(self.run.notes)
        error = self.run.step(s.text)
        after = self.run.tensors()
        twins = error is not None and "out=" in s.text and self.twins(before, used[0])
        if twins or not self.worth(kind, error, before, after, rough and not wild):
            self.run.errors.pop()
            for name in [*after]:
                self.run.env.pop(name) if name not in before else None
            self.run.env |= before
            del self.run.notes[notes:]
            return
        if error is not None and "out=" in s.text:  # eager may have resized it before it raised
            s = replace(s, drop=used[0])
            del self.run.env[used[0]], after[used[0]]
        if any(x in s.text for x in RESHAPING) and after[used[0]]._is_view():
            self.turned.add(storage(after[used[0]]))
        self.statements.append(s)
        tol = max((self.rounded.get(storage(before[x]), 0.0) for x in used), default=0.0)
        self.mark(before, after, used if kind in CHANGING else (), rough, tol)
        if rough and len(self.run.notes) > notes:
            self.rounded_notes[str(notes)] = tol

    def twins(self, tensors: dict[str, torch.Tensor], name: str) -> bool:
        """Whether another tensor has its memory, which eager may write before it raises."""
        return sum(storage(t) == storage(tensors[name]) for t in tensors.values()) > 1

    def worth(self, kind: str, error: Any, before: Any, after: Any, careful: bool) -> bool:
        """Whether the statement stays: errors a few times, results that are not too large."""
        if "ZeroTensor" in str(error):  # eager's own optimization got in its way
            return False
        if error is not None:
            self.errors += 1
            return kind in CHANGING or self.errors <= 2
        made = [t for name, t in after.items() if t is not before.get(name)]
        for t in made if kind not in CHANGING else []:
            if not isinstance(t, torch.Tensor) or t.numel() > MOST or t.dim() > 5:
                return False
            if (
                t.layout != torch.strided
                or t.dtype == torch.complex32
                or (t.is_neg() and t.dtype == torch.bool)
            ):
                return False  # eager itself cannot read a negated bool
            if careful and not (finite(t) and self.size(t) < 1e3):
                return False
        return True

    def size(self, t: torch.Tensor) -> float:
        v = real_parts(t)
        v = v[v.isfinite()].double() if v.is_floating_point() else v.double()
        return float(v.abs().max()) if v.numel() else 0.0

    def mark(
        self, before: Any, after: Any, changed: tuple[str, ...], rough: bool, tol: float
    ) -> None:
        """Marks what may be rounded now; `tol`: what it was made from may be off by as much."""
        for name, t in list(after.items()):
            if t is None or not isinstance(t, torch.Tensor):
                del self.run.env[name]  # the gradient that was not there
                s = self.statements[-1]
                self.statements[-1] = replace(s, text=f"{s.text}; del {name}")
                continue
            fresh = t is not before.get(name)
            if fresh:
                self.kept.append(t.detach())
            hit = rough and (fresh or name in changed[:1])
            if hit or not in_window(t):
                own = RTOL.get(t.dtype.to_real() if t.is_complex() else t.dtype, 0.0)
                self.rounded[storage(t)] = max(own, tol, self.rounded.get(storage(t), 0.0))
                self.scale = max(self.scale, min(self.size(t), 1e30))

    @property
    def over(self) -> bool:
        """Whether rounded values became so large that a comparison says little."""
        return self.scale > 1e4

    def inexact(self) -> dict[str, float]:
        """Variables, and reads, that may be rounded, and by which share."""
        tensors = self.run.tensors().items()
        found = {n: self.rounded[storage(t)] for n, t in tensors if storage(t) in self.rounded}
        return self.rounded_notes | found


def make(draw: Any) -> Maker:
    """A random program of 20 to 60 statements, run on the CPU."""
    m = Maker(draw)
    for _ in range(2 + m.below(2)):
        m.create()
    length = draw(st.integers(20, 60))
    for _ in range(2 * length):
        if len(m.statements) >= length or m.over:
            break
        m.create() if m.below(14) == 13 else m.statement()
    return m


def check_on_device(m: Maker) -> None:
    """The device gives eager's answers."""
    check(m.statements, m.run, m.inexact(), m.scale)


# ---- smaller programs -----------------------------------------------------------------------


def again(statements: list[Statement]) -> Maker:
    """The same statements anew, without those whose variables are gone."""
    m = Maker(None)
    for s in statements:
        if all(x in m.run.env for x in s.used):
            m.add(s)
    return m


def fails(m: Maker) -> Exception | None:
    """What differs on the device."""
    try:
        check_on_device(m)
    except Exception as e:
        return e.with_traceback(None)  # its frames would keep the program's tensors pending
    return None


def reduced(m: Maker) -> Maker:
    """A smaller program that still fails: halves, quarters, ... single statements taken out."""
    size = max(len(m.statements) // 2, 1)
    while size:
        at = len(m.statements)
        while at > 0:
            fewer = m.statements[: max(at - size, 0)] + m.statements[at:]
            smaller = again(fewer)
            if len(smaller.statements) < len(m.statements) and fails(smaller):
                m = smaller
                at = min(at, len(m.statements))
            at -= size
        size //= 2
    return m
