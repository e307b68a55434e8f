"""Why graphs were compiled, where they were cut, what ran on the CPU: as data, text and a page."""

import html
import linecache
import os
from collections.abc import Iterator
from contextlib import ContextDecorator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, overload

import torch

from . import _C

__all__ = ["Compile", "Explanation", "Interpreted", "Place", "Read", "Reason", "explain", "no_cuts"]


@dataclass(frozen=True)
class Place:
    """The innermost line outside PyTorch. `backward`: the op is of the backward of that line.

    `own`: the user's own innermost line, where this one is an installed package's: the one that
    called it (of a read), or that was the first to reach it (of an op).
    """

    file: str = ""
    line: int = 0
    function: str = ""
    scope: str = ""
    backward: bool = False
    text: str = ""
    own: "Place | None" = None

    def __str__(self) -> str:
        called = f", from {self.own.text}" if self.own else ""
        return f"{self.text or '(no Python line)'}{called}"

    def source(self, around: int = 2) -> list[tuple[int, str]]:
        """The line and its neighbours, numbered; empty where the file cannot be read."""
        first = max(1, self.line - around)
        lines = [(n, linecache.getline(self.file, n)) for n in range(first, self.line + around + 1)]
        kept = [(n, text.rstrip()) for n, text in lines if text]
        while kept and not kept[-1][1]:
            kept.pop()
        while kept and not kept[0][1]:
            kept.pop(0)
        return kept


@dataclass(frozen=True)
class Reason:
    """One difference from the nearest known graph. The kinds are listed in docs/debugging.md."""

    kind: str
    text: str
    place: Place

    def __str__(self) -> str:
        return self.text


def place(found: dict[str, Any]) -> Place:
    """A place as the core gives it."""
    own = found.get("own")
    return Place(**found | {"own": Place(**own) if own else None})


@dataclass(frozen=True)
class Compile:
    """One compile. `unexpected`: the line that synced had compiled before.

    Or, with `interpreted`, a graph that was seen for the first time and computed by PyTorch's CPU
    kernels instead (docs/tiers.md); `unexpected`: the line had brought another graph before.
    `fresh`: a new graph, which shares too little with all known ones to be compared. `rounds`: how
    many steps seem to stand in this one graph, for want of a sync; `rounds_at` is a line of theirs.
    """

    number: int
    at: float
    seconds: float
    nodes: int
    arguments: int
    outputs: int
    key: str
    nearest: str
    site: str
    unexpected: bool
    reasons: tuple[Reason, ...]
    fresh: bool = False
    interpreted: bool = False
    rounds: int = 1
    rounds_at: Place = field(default_factory=Place)

    def _why(self) -> list[str]:
        if self.fresh:
            return [f"  a new graph: {r}" for r in self.reasons]
        if self.unexpected or any(r.kind == "part" for r in self.reasons):
            return [f"  {r}" for r in self.reasons]
        return ["  first one at this line"]

    def __str__(self) -> str:
        what = "interpreted" if self.interpreted else f"compile {self.number}"
        time = "seen once" if self.interpreted else f"{self.seconds * 1e3:.0f} ms"
        head = (
            f"{what}: {time}, {self.nodes} ops, key {self.key[:8]}, synced at "
            f"{self.site or '(no Python line)'}"
        )
        return "\n".join([head, *self._why()])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True)
class Read:
    """A line that read values: `cuts` of its `reads` forced a sync; `seconds` it took in all.

    `advice`: how to do without its cuts; empty where it never cut.
    """

    kind: str
    place: Place
    cuts: int
    reads: int
    seconds: float
    advice: str = ""

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.kind}: {self.cuts} cuts in {self.reads} reads, "
            f"{self.seconds * 1e3:.1f} ms"
        )


@dataclass(frozen=True)
class Interpreted:
    """A line whose graphs PyTorch's CPU kernels computed, without a compile (docs/tiers.md).

    `graphs` different ones in `times` syncs; the newest had `nodes` ops there. `peeled` of these
    times it was only the whole-number ops around a program.
    """

    site: str
    nodes: int
    graphs: int
    times: int
    peeled: int

    def __str__(self) -> str:
        around = f", {self.peeled} times around a program" if self.peeled else ""
        seen = "seen once" if self.times == self.graphs else f"{self.times} times"
        return (
            f"{self.site or '(no Python line)'}: {self.graphs} graphs of about {self.nodes} ops, "
            f"{seen}{around}"
        )


@dataclass(frozen=True)
class Explanation:
    """Everything so far.

    `new_graphs`: what was interpreted when it was seen for the first time (of a line's graphs the
    first 32, then each power of two). `on_cpu`: how often each op ran on the CPU, in a cut or in
    the program. `shardings`: live tensors that are on meshes (spmd); `collectives`: of the programs
    there.
    """

    compiles: tuple[Compile, ...] = ()
    reads: tuple[Read, ...] = ()
    on_cpu: dict[str, int] = field(default_factory=dict)
    interpreted: tuple[Interpreted, ...] = ()
    new_graphs: tuple[Compile, ...] = ()
    shardings: tuple[Any, ...] = ()
    collectives: tuple[Any, ...] = ()

    @property
    def recompiles(self) -> tuple[Compile, ...]:
        """The unexpected compiles."""
        return tuple(c for c in self.compiles if c.unexpected)

    @property
    def cuts(self) -> tuple[Read, ...]:
        """The lines that cut the graph, those that took longest first."""
        return tuple(sorted((r for r in self.reads if r.cuts), key=lambda r: -r.seconds))

    def _lines(self) -> Iterator[str]:
        spent = sum(c.seconds for c in self.compiles)
        yield (
            f"{len(self.compiles)} compiles in {spent:.2f} s, {len(self.recompiles)} of them "
            "unexpected"
        )
        yield from (f"  {line}" for c in self.compiles for line in str(c).splitlines())
        if self.interpreted:
            yield "interpreted"
            yield from (f"  {i}" for i in self.interpreted)
            yield from (f"  {line}" for c in self.new_graphs for line in str(c).splitlines())
        yield f"{sum(r.cuts for r in self.reads)} graph cuts"
        yield from (f"  {r}" for r in self.cuts)
        if self.on_cpu:
            yield "ops on the CPU"
            yield from (f"  {name}: {count} times" for name, count in self.on_cpu.items())
        if self.shardings:
            yield "on meshes"
            yield from (f"  {s}" for s in self.shardings)
        if self.collectives:
            yield "collectives, in one run of each program"
            yield from (f"  {c}" for c in self.collectives)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        from . import _report

        return _report.notebook_frame()


def _events() -> tuple[Compile, ...]:
    found = []
    for event in _C.compile_events():
        reasons = tuple(Reason(kind, text, place(p)) for kind, text, p in event.pop("reasons"))
        at = place(event.pop("rounds_at"))
        found.append(Compile(**event, reasons=reasons, rounds_at=at))
    return tuple(found)


def _on_cpu() -> dict[str, int]:
    return {
        name: count
        for name, count in _C.counters().items()
        if name.startswith("hostop::") or ("::" in name and not name.startswith("torch_pjrt"))
    }


def _on_meshes() -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    if not _C.any_sharding():
        return (), ()
    from . import _sharded

    return tuple(_sharded.sharded()), tuple(_sharded.collectives())


class _Explain:
    """`torch_pjrt.explain()`: all compiles and cuts; `.report(path)`: a page; `.clear()`."""

    @overload
    def __call__(self, last: Literal[True]) -> Compile | None: ...
    @overload
    def __call__(self, last: Literal[False] = False) -> Explanation: ...
    def __call__(self, last: bool = False) -> Compile | Explanation | None:
        """All so far, or, with `last`, the newest compile or new graph (None before the first)."""
        events = _events()
        if last:
            return events[-1] if events else None
        reads = tuple(Read(r[0], place(r[1]), *r[2:]) for r in _C.reads())
        interpreted = tuple(Interpreted(*line) for line in _C.interpreted())
        compiles = tuple(c for c in events if not c.interpreted)
        graphs = tuple(c for c in events if c.interpreted)
        return Explanation(compiles, reads, _on_cpu(), interpreted, graphs, *_on_meshes())

    def clear(self) -> None:
        """Forgets what happened so far; known graphs stay, so that recompiles are explained."""
        _C.clear_explain()

    def report(self, path: str | os.PathLike[str] = "torch_pjrt.html", title: str = "") -> Path:
        """Writes one self-contained page about the run so far; its path."""
        from . import _report

        return _report.write(Path(path), title)

    def trace(self, path: str | os.PathLike[str] = "torch_pjrt.json") -> Path:
        """Writes the timeline in Chrome's trace format (chrome://tracing, ui.perfetto.dev)."""
        from . import _report

        return _report.write_trace(Path(path))

    def findings(self) -> list[Any]:
        """Known mistakes that the run shows, each with its line and what to do."""
        from . import _report

        return list(_report.findings())


explain = _Explain()


class no_cuts(ContextDecorator):  # noqa: N801 - used like a function
    """`with torch_pjrt.no_cuts():` a read that would cut the graph raises at its line instead.

    In this thread, and in the backward passes that it starts.
    """

    def __init__(self) -> None:
        self._before: list[int] = []

    def _recreate_cm(self) -> "no_cuts":  # a decorated function may run in several threads
        return no_cuts()

    def __enter__(self) -> "no_cuts":
        if torch.compiler.is_compiling():  # a compiled graph has no read, or is cut there by dynamo
            return self
        self._before.append(_C.exchange_no_cuts(1))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not torch.compiler.is_compiling():
            _C.exchange_no_cuts(self._before.pop())
