"""Loops and branches inside a program: a body is recorded once, on stand-ins, and run by one node.

`scan` is a loop of a known length with gradients, `while_loop` one of an unknown length without,
`branch` a condition. torch's own cond, while_loop, scan and map (`_higher_order.py`), `scan_layers`
and the recurrent nets are made of them. All tensors are of device xla.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from . import _C

__all__ = ["Recorded", "branch", "scan", "while_loop"]

Tensors = Sequence[torch.Tensor]
# Of a body: tensors in, tensors out.
Body = Callable[..., Tensors]
Around = Callable[..., contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def _casts_of_its_own() -> Iterator[None]:
    """What autocast keeps of a body's stand-ins is of no use outside of it."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


class Recorded:
    """A body on stand-ins for `like`; `results` is what it gave."""

    def __init__(self, name: str, like: Tensors, body: Body, grads: Sequence[bool] = ()) -> None:
        self.body = _C.Body(like, name)
        self.stand_ins = self.body.stand_ins()
        try:
            for t, wanted in zip(self.stand_ins, grads, strict=False):
                t.requires_grad_(wanted)
            with _casts_of_its_own():
                self.results = list(body(*self.stand_ins))
        finally:
            self.body.end()

    def finish(self, more: Tensors = ()) -> Any:
        """The body as the core takes it, with its results and `more`."""
        self.body.finish([t.detach() for t in (*self.results, *more)])
        return self.body

    def refuse_writes(self, name: str, count: int) -> None:
        """Raises where the body wrote one of its first `count` stand-ins."""
        written = [i for i in self.body.written() if i < count]
        if written:
            raise RuntimeError(
                f"{name}: its body writes argument {written[0]} in place\n"
                "  try: return the new value instead, or write a clone"
            )


def branch(
    name: str, predicate: torch.Tensor, on_true: Body, on_false: Body, operands: Tensors
) -> list[torch.Tensor]:
    """What `on_true` or `on_false` gives of `operands`; only that one runs.

    `predicate` has one element. What a branch writes to an operand is written.
    """
    both = [Recorded(name, operands, body) for body in (on_true, on_false)]
    written = sorted({i for r in both for i in r.body.written()})
    bodies = [r.finish([r.stand_ins[i] for i in written]) for r in both]
    choice = predicate.reshape(()) != 0
    out = _C.record_branch(choice, bodies[0], bodies[1], operands)
    kept = len(both[0].results)
    for i, value in zip(written, out[kept:], strict=True):
        operands[i].copy_(value)
    return out[:kept]


def while_loop(
    name: str, condition: Body, body: Body, carried: Tensors, invariants: Tensors = ()
) -> list[torch.Tensor]:
    """`carried = body(*carried, *invariants)` while `condition(*carried, *invariants)`.

    What the body writes to an invariant is written.
    """
    like, count = [*carried, *invariants], len(carried)
    step = Recorded(name, like, body)
    test = Recorded(name, like, lambda *a: _predicate(condition(*a)))
    step.refuse_writes(name, count)
    test.refuse_writes(name, len(like))
    if len(step.results) != count:
        raise RuntimeError(
            f"{name}: expected {count} values from the body, one for each that is carried, "
            f"found {len(step.results)}"
        )
    written = step.body.written()
    if not written:
        return _C.record_loop(test.finish(), step.finish(), carried, (), invariants, -1, False)
    more = step.stand_ins[count:]
    out = _C.record_loop(test.finish(), step.finish(more), like, (), (), -1, False)
    for i in written:
        like[i].copy_(out[i])
    return out[:count]


def _predicate(value: Any) -> Tensors:
    value = value[0] if isinstance(value, tuple | list) else value
    if isinstance(value, torch.Tensor) and value.dtype is torch.bool and value.dim() == 0:
        return [value]
    raise RuntimeError(f"cond_fn must return a boolean scalar tensor or a boolean but got {value}")


def scan(
    name: str,
    body: Body,
    carried: Tensors,
    scanned: Tensors,
    invariants: Tensors = (),
    *,
    length: int,
    reverse: bool = False,
    around: Around | None = None,
) -> list[torch.Tensor]:
    """`carried, *outs = body(*carried, *slices, *invariants)` for each slice of `scanned`.

    Slices are of dim 0, which has `length` >= 1 elements, in order or in `reverse`. Gives what is
    carried behind the last round, and of each further result a stack along dim 0. Differentiable by
    all three kinds of tensors, twice at the price of the plain loop. What the body captures may not
    require a gradient. `around(*slices, *invariants)` is a context for the backward pass of a
    round, in case that it calls the body's functions again (checkpoints).
    """
    spec = _Spec(name, body, (len(carried), len(scanned), len(invariants)), length, reverse)
    spec.around = around
    tensors = (*carried, *scanned, *invariants)
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return list(_Scan.apply(spec, *tensors))  # type: ignore[no-untyped-call]
    recorded = Recorded(name, spec.slices(tensors), body)
    recorded.refuse_writes(name, len(tensors))
    _check_captured(name, recorded.results, ())
    return spec.loop(recorded.finish(), tensors)


class _Spec:
    """What a scan is, but for its tensors."""

    around: Around | None = None

    def __init__(
        self, name: str, body: Body, counts: tuple[int, int, int], length: int, reverse: bool
    ) -> None:
        self.name, self.body, self.counts = name, body, counts
        self.length, self.reverse = length, reverse

    def parts(self, tensors: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        a, b, _ = self.counts
        return list(tensors[:a]), list(tensors[a : a + b]), list(tensors[a + b :])

    def slices(self, tensors: Tensors) -> list[torch.Tensor]:
        """What the body's stand-ins are like."""
        carried, scanned, invariants = self.parts(tensors)
        return [*carried, *(t.detach()[0] for t in scanned), *invariants]

    def plain_loop(self, tensors: Tensors) -> list[torch.Tensor]:
        carried, scanned, invariants = self.parts(tensors)
        stacks: list[Tensors] = []
        rounds = range(self.length)
        for i in reversed(rounds) if self.reverse else rounds:
            out = list(self.body(*carried, *(t[i] for t in scanned), *invariants))
            carried = out[: len(carried)]
            stacks.append(out[len(carried) :])
        stacks = stacks[::-1] if self.reverse else stacks
        return [*carried, *(torch.stack(list(s)) for s in zip(*stacks, strict=True))]

    def loop(self, body: Any, tensors: Tensors) -> list[torch.Tensor]:
        return _C.record_loop(None, body, *self.parts(tensors), self.length, self.reverse)


class _Saved:
    """What autograd saves of a body's values: where each comes from, by its window."""

    def __init__(self) -> None:
        self.recorded: Any = None  # the core's body, while it records
        self.values: dict[int, torch.Tensor] = {}  # of the body, by number
        self.stand_ins: set[int] = set()  # whose memory is looked at again
        self.outer: list[torch.Tensor] = []
        # In the backward pass: what stands for those.
        self.now_values: dict[int, torch.Tensor] = {}
        self.now_stand_ins: dict[int, torch.Tensor] = {}
        self.now_outer: Tensors = ()

    def pack(self, t: torch.Tensor) -> Any:
        stand_in, value, base, window = self.recorded.source(t)
        shape = (t.size(), t.stride(), t.storage_offset()) if window else None
        if stand_in >= 0:
            self.stand_ins.add(stand_in)
            return "stand-in", stand_in, shape
        if value:
            self.values.setdefault(value, base)
            return "value", value, shape
        self.outer.append(t)
        return "outer", len(self.outer) - 1, None

    def unpack(self, packed: tuple[str, int, Any]) -> torch.Tensor:
        kind, number, shape = packed
        if kind == "outer":
            return self.now_outer[number]
        base = (self.now_stand_ins if kind == "stand-in" else self.now_values)[number]
        if shape is None or shape == (base.size(), base.stride(), 0):
            return base
        return base.as_strided(*shape)


def _floating(t: torch.Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


class _Scan(torch.autograd.Function):
    """The body's own graph of autograd is what the backward loop's body runs.

    What that graph saved is stacked by the forward loop (a value of the body) or is there already
    (a slice of what is scanned, an invariant, a value from outside).
    """

    @staticmethod
    def forward(ctx: Any, spec: _Spec, *tensors: torch.Tensor) -> Any:
        saved = _Saved()
        wanted = [t.requires_grad for t in tensors]
        wanted[: spec.counts[0]] = [_floating(t) for t in tensors[: spec.counts[0]]]

        def body(*stand_ins: torch.Tensor) -> Tensors:
            hooks = torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack)
            with torch.enable_grad(), hooks:
                return spec.body(*stand_ins)

        recorded = _RecordedForward(spec, saved, tensors, body, wanted)
        outs = spec.loop(recorded.finish(recorded.stacked()), tensors)
        count = len(recorded.results)
        ctx.recorded, ctx.spec, ctx.saved_by_body = recorded, spec, saved
        ctx.save_for_backward(*tensors, *saved.outer, *outs[count:], *recorded.hoisted.values())
        ctx.stacks = len(outs) - count
        ctx.mark_non_differentiable(
            *(o for o, r in zip(outs, recorded.results, strict=False) if not r.requires_grad)
        )
        ctx.set_materialize_grads(True)
        return tuple(outs[:count])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        backward = _Backward(ctx, grads)
        # With create_graph=True the gradients themselves are differentiable.
        return (None, *(backward.unrolled() if torch.is_grad_enabled() else backward.run()))


class _RecordedForward(Recorded):
    """The body of a scan, and which of its values are stacked for the backward loop."""

    def __init__(
        self, spec: _Spec, saved: _Saved, tensors: Tensors, body: Body, wanted: list[bool]
    ) -> None:
        self.spec, self.saved, self.wanted = spec, saved, wanted
        like = spec.slices(tensors)
        self.hoisted: dict[int, torch.Tensor] = {}  # values that no round changes
        super().__init__(spec.name, like, self._noting(body), wanted)
        self.refuse_writes(spec.name, len(tensors))
        _check_captured(spec.name, self.results, self.stand_ins)

    def _noting(self, body: Body) -> Body:
        def noting(*stand_ins: torch.Tensor) -> Tensors:
            self.saved.recorded = self.body
            return body(*stand_ins)

        return noting

    def stacked(self) -> list[torch.Tensor]:
        """Values of the body, and what it carried in, that its graph saved."""
        self.saved.recorded = None
        for number, base in list(self.saved.values.items()):
            outside = self.body.outside(base)
            if outside is not None:
                self.hoisted[number] = outside
        self.numbers = [n for n in self.saved.values if n not in self.hoisted]
        self.carried = sorted(i for i in self.saved.stand_ins if i < self.spec.counts[0])
        return [
            *(self.saved.values[n] for n in self.numbers),
            *(self.stand_ins[i] for i in self.carried),
        ]


def _check_captured(name: str, results: Tensors, stand_ins: Tensors) -> None:
    """Raises where the body's graph leads to a tensor that was not given to it."""
    own = {id(t) for t in stand_ins}
    seen: set[Any] = set()
    stack = [t.grad_fn for t in results if t.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)  # of a leaf
        if variable is not None and id(variable) not in own:
            raise RuntimeError(
                f"{name}: its body uses a tensor {tuple(variable.shape)} that requires a gradient "
                "and is not among its arguments\n  try: pass it to the loop, or detach it"
            )
        stack.extend(n for n, _ in node.next_functions if n is not None)


class _Backward:
    """The loop that runs a body's graph backwards, from the last round to the first."""

    def __init__(self, ctx: Any, grads: Tensors) -> None:
        self.spec: _Spec = ctx.spec
        self.forward: _RecordedForward = ctx.recorded
        self.saved: _Saved = ctx.saved_by_body
        kept = list(ctx.saved_tensors)
        count, outer = len(self.forward.stand_ins), len(self.saved.outer)
        self.tensors, self.outer = kept[:count], kept[count : count + outer]
        self.stacks = kept[count + outer : count + outer + ctx.stacks]
        self.hoisted = kept[count + outer + ctx.stacks :]
        self.needed = [
            i
            for i, needs in enumerate(ctx.needs_input_grad[1:])
            if needs or (i < self.spec.counts[0] and self.forward.wanted[i])
        ]
        self.outputs = [i for i, r in enumerate(self.forward.results) if r.requires_grad]
        self.grads = grads
        a, b, _ = self.spec.counts
        self.of_carried = [i for i in self.needed if i < a]
        self.of_scanned = [i for i in self.needed if a <= i < a + b]
        self.of_invariants = [i for i in self.needed if i >= a + b]

    def run(self) -> list[torch.Tensor | None]:
        """Gradients of the scan's tensors, None where none is asked for."""
        a, b, _ = self.spec.counts
        used = self.saved.stand_ins
        if self.spec.around:
            used = {*used, *range(a, len(self.tensors))}
        self.slices = [i for i in sorted(used) if a <= i < a + b]
        self.whole = [i for i in sorted(used) if i >= a + b]
        carried = [self._incoming(i) for i in self.of_carried]
        carried += [torch.zeros_like(self.tensors[i]) for i in self.of_invariants]
        self.of_outs = [i for i in self.outputs if i >= a]
        scanned = [self.grads[i] for i in self.of_outs]
        scanned += [self.tensors[i] for i in self.slices] + self.stacks
        counts = (len(carried), len(scanned), len(self.whole))
        name = f"the backward of {self.spec.name}"
        spec = _Spec(name, self._body, counts, self.spec.length, not self.spec.reverse)
        tensors = [*carried, *scanned, *(self.tensors[i] for i in self.whole)]
        recorded = Recorded(name, self._like(spec, tensors), self._body)
        body = recorded.finish()
        if body.uses(self.forward.body) or body.draws:
            what = "draws random numbers" if body.draws else "uses values that were not saved"
            raise RuntimeError(
                f"{name} {what}, as a checkpoint inside its body does\n"
                "  try: torch.utils.checkpoint around the loop"
            )
        outs = spec.loop(body, tensors)
        gradients: list[torch.Tensor | None] = [None] * len(self.tensors)
        places = (*self.of_carried, *self.of_invariants, *self.of_scanned)
        for i, out in zip(places, outs, strict=True):
            gradients[i] = out
        return gradients

    def unrolled(self) -> list[torch.Tensor | None]:
        """The same by the plain loop, which can be differentiated again."""
        spec = self.spec
        if self.forward.body.draws:
            raise RuntimeError(
                f"{spec.name} draws random numbers: it cannot be differentiated twice"
            )
        outs = spec.plain_loop(self.tensors)
        wanted = [i for i in self.needed if self.tensors[i].requires_grad]
        used = [i for i in self.outputs if outs[i].requires_grad]
        found = torch.autograd.grad(
            [outs[i] for i in used],
            [self.tensors[i] for i in wanted],
            [self.grads[i] for i in used],
            create_graph=True,
            allow_unused=True,
        )
        gradients: list[torch.Tensor | None] = [None] * len(self.tensors)
        for i, g in zip(wanted, found, strict=True):
            gradients[i] = g
        return gradients

    def _incoming(self, i: int) -> torch.Tensor:
        """The gradient of the carried value behind the last round."""
        if i in self.outputs:
            return self.grads[i]
        return torch.zeros_like(self.tensors[i])

    def _like(self, spec: _Spec, tensors: Tensors) -> list[torch.Tensor]:
        """Stand-ins for saved memory lie as that memory did."""
        like = spec.slices(tensors)
        stacked = [self.saved.values[n] for n in self.forward.numbers]
        stacked += [self.forward.stand_ins[i] for i in self.forward.carried]
        at = spec.counts[0] + len(self.of_outs)
        same = [self.forward.stand_ins[i] for i in self.slices] + stacked
        like[at : at + len(same)] = same
        like[spec.counts[0] + spec.counts[1] :] = [self.forward.stand_ins[i] for i in self.whole]
        return like

    def _body(self, *stand_ins: torch.Tensor) -> Tensors:
        given = iter(stand_ins)
        into = {i: next(given) for i in self.of_carried}
        sums = [next(given) for _ in self.of_invariants]
        outs = {i: next(given) for i in self.of_outs}
        now = {i: next(given) for i in self.slices}
        values = {n: next(given) for n in self.forward.numbers}
        now |= {i: next(given) for i in self.forward.carried}
        now |= {i: next(given) for i in self.whole}
        values |= dict(zip(self.forward.hoisted, self.hoisted, strict=True))
        for i, t in now.items():  # as they were: a checkpoint compares what it saves
            t.requires_grad_(self.forward.wanted[i])
        saved = self.saved
        saved.now_values, saved.now_stand_ins, saved.now_outer = values, now, self.outer
        of = {i: g for i, g in (into | outs).items() if i in self.outputs}
        own = [now[i] for i in range(self.spec.counts[0], len(self.tensors)) if i in now]
        with self.spec.around(*own) if self.spec.around else contextlib.nullcontext():
            grads = self._grads(of)
        by = dict(zip(self.needed, grads, strict=True))
        saved.now_values, saved.now_stand_ins, saved.now_outer = {}, {}, ()
        added = [s + by[i] for s, i in zip(sums, self.of_invariants, strict=True)]
        return [
            *(by[i] for i in self.of_carried),
            *added,
            *(by[i] for i in self.of_scanned),
        ]

    def _grads(self, of: dict[int, torch.Tensor]) -> list[torch.Tensor]:
        inputs = [self.forward.stand_ins[i] for i in self.needed]
        grads: Sequence[torch.Tensor | None] = [None] * len(inputs)
        if of and inputs:
            grads = torch.autograd.grad(
                [self.forward.results[i] for i in of],
                inputs,
                list(of.values()),
                retain_graph=True,
                allow_unused=True,
            )
        return [
            torch.zeros(t.shape, dtype=t.dtype, device=t.device) if g is None else g.to(t.dtype)
            for t, g in zip(inputs, grads, strict=True)
        ]
