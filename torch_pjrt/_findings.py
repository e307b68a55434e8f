"""Classic mistakes, recognised in what a run recorded. Each finding names a line and what to do."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import _C, metrics
from ._explain import Compile, Explanation, Place, Reason
from ._explain import place as _place

__all__ = ["Finding", "earlier_census", "find"]

# How often something has to happen before it is called a habit.
_OFTEN = 3
_EAGER = (
    "Where they cannot repeat, run that part in `with torch_pjrt.eager_mode():`, whose programs "
    "are of single ops."
)
_INTERPRETED = "Where they cannot repeat, PyTorch's CPU kernels compute them, at eager's speed."


@dataclass(frozen=True)
class Finding:
    """`kind` is stable, for programs; `cost` says how much time or memory, for people."""

    kind: str
    severity: str  # "bad" or "warn"
    title: str
    text: str
    place: Place
    advice: str
    cost: str

    def as_json(self) -> dict[str, str]:
        """All but the place."""
        kept = ("kind", "severity", "title", "text", "advice", "cost")
        return {k: getattr(self, k) for k in kept}

    def __str__(self) -> str:
        return f"{self.title} ({self.place}): {self.text}\n  try: {self.advice}"


def _cost(graphs: list[Compile]) -> str:
    compiles = [c for c in graphs if not c.interpreted]
    told = f"{len(compiles)} compiles, {sum(c.seconds for c in compiles):.2f} s"
    interpreted = len(graphs) - len(compiles)
    return told + (f"; {interpreted} interpreted at eager's speed" if interpreted else "")


def _graphs(e: Explanation) -> list[Compile]:
    """What was compiled, and what was only interpreted so far."""
    compiled = {c.key for c in e.compiles}
    return [*e.compiles, *(c for c in e.new_graphs if c.key not in compiled)]


Hits = list[tuple[Compile, Reason]]


def _by_line(e: Explanation, kinds: set[str]) -> list[tuple[Place, Hits]]:
    """Unexpected graphs with a reason of these kinds, by line: as few lines as explain them all.

    A shape that grows shows at many arguments: the line with part in most compiles is the cause.
    """
    left = [c for c in _graphs(e) if c.unexpected and any(r.kind in kinds for r in c.reasons)]
    found: list[tuple[Place, Hits]] = []
    while left:
        count = Counter({r.place: 0 for c in left for r in c.reasons if r.kind in kinds})
        for c in left:
            count.update({r.place for r in c.reasons if r.kind in kinds})
        place = max(count, key=lambda p: (count[p], bool(p.text)))
        hits = [
            (c, next(r for r in c.reasons if r.kind in kinds and r.place == place))
            for c in left
            if any(r.kind in kinds and r.place == place for r in c.reasons)
        ]
        found.append((place, hits))
        taken = {c.number for c, _ in hits}
        left = [c for c in left if c.number not in taken]
    return found


def _runs() -> dict[str, int]:
    """How often each program ran, by key."""
    return {p["key"]: p["runs"] for p in _C.programs()} if _C.client_exists() else {}


def _shapes(e: Explanation) -> Iterator[Finding]:
    runs = _runs()
    for place, hits in _by_line(e, {"argument"}):
        if len(hits) < _OFTEN:
            continue
        never = all(runs.get(c.key, 1) <= 1 for c, _ in hits)
        interpreted = all(c.interpreted for c, _ in hits)
        yield Finding(
            "growing shapes",
            "bad",
            "Shapes never repeat" if never else "Shapes change from step to step",
            f"Every new shape is a new graph. The last one: {hits[-1][1].text}",
            place,
            "Pad to a few fixed sizes (buckets), or drop the last smaller batch."
            + (" " + (_INTERPRETED if interpreted else _EAGER) if never else ""),
            _cost([c for c, _ in hits]),
        )


def _fresh(e: Explanation) -> Iterator[Finding]:
    """Lines whose graphs have nothing in common."""
    fresh = [c for c in _graphs(e) if c.fresh]
    for site, count in Counter(c.site for c in fresh).items():
        hits = [c for c in fresh if c.site == site]
        if count <= 2 * _OFTEN:  # a script may train a few models
            continue
        yield Finding(
            "new graphs",
            "bad",
            "Graphs never repeat",
            f"{site} brought {count} graphs that share little: {hits[-1].reasons[0].text}.",
            Place(text=site),
            _INTERPRETED if all(c.interpreted for c in hits) else _EAGER,
            _cost(hits),
        )


def _unsynced(e: Explanation) -> Iterator[Finding]:
    long = [c for c in _graphs(e) if c.rounds > 1]
    if not long:
        return
    most = max(long, key=lambda c: c.nodes)
    yield Finding(
        "no sync",
        "bad",
        "Many steps are one graph",
        f"Nothing synced between about {most.rounds} rounds of this line, so that they were "
        f"recorded as one graph; the largest has {most.nodes} ops.",
        most.rounds_at,
        "Call torch_pjrt.sync() at the end of each step: a step is one small program then, "
        "compiled once, and the next is recorded while it runs.",
        _cost(long),
    )


def _numbers(e: Explanation) -> Iterator[Finding]:
    for place, hits in _by_line(e, {"number", "size"}):
        if len(hits) < _OFTEN:
            continue
        yield Finding(
            "baked number",
            "bad",
            "A Python number shapes the graph",
            f"It is part of the graph, so that each value is a new one: {hits[-1][1].text}",
            place,
            "Compute it on the device (torch.where, a mask, index_select with a tensor), or let it "
            "take few values.",
            _cost([c for c, _ in hits]),
        )


def _strays(e: Explanation) -> Iterator[Finding]:
    for place, hits in _by_line(e, {"alive", "dead"}):
        clear = [
            (c, r)
            for c, r in hits
            if all(x.kind in ("alive", "dead") or x.place == place for x in c.reasons)
        ]
        if len(clear) < 2:
            continue
        yield Finding(
            "stray tensor",
            "warn",
            "A tensor is alive at some syncs and not at others",
            f"What is alive at a sync is an output of its program: {clear[-1][1].text}",
            place,
            "Drop it before the sync (del), or keep it at every step.",
            _cost([c for c, _ in clear]),
        )


def _reading(advice: str) -> str:
    if "torch" in advice:  # of a function of PyTorch's that reads: how to do without
        return advice[:1].upper() + advice[1:] + "."
    return (
        "Read it every few steps, after torch_pjrt.sync(); or keep a running value on the device."
    )


def _items(e: Explanation, steps: int) -> Iterator[Finding]:
    for r in e.cuts:
        if r.cuts < max(_OFTEN, steps // 4) or r.kind.endswith(" on the CPU"):
            continue
        yield Finding(
            "read in the loop",
            "warn",
            f"{r.kind} cuts the graph in the loop",
            f"It ran {r.cuts} times and took {r.seconds:.2f} s, compiles included. Python waits "
            "for the device, and the device for Python.",
            r.place,
            _reading(r.advice),
            f"{r.cuts} cuts, {r.seconds:.2f} s",
        )


def lines_on_cpu(e: Explanation, counter: str) -> list[Place]:
    """The lines that called the op behind such a counter, the costliest first."""
    plain = counter.removeprefix("hostop::")
    if plain != counter:
        return [_place(p) for p in _C.op_lines(plain)]
    reads = [r for r in e.reads if r.kind.startswith(f"{plain} ") and r.place.text]
    return [r.place for r in sorted(reads, key=lambda r: -r.seconds)]


def _cpu(e: Explanation) -> Iterator[Finding]:
    for name, count in e.on_cpu.items():
        plain, host = name.removeprefix("hostop::"), name.startswith("hostop::")
        if count < _OFTEN:
            continue
        place = next(iter(lines_on_cpu(e, name)), Place())
        how = "inside the program, on the host" if host else "on the CPU, which cuts the graph"
        yield Finding(
            "op on the CPU",
            "warn",
            f"{plain} has no lowering",
            f"It ran {count} times {how}.",
            place,
            "Use another op in the hot loop, or move it out of the loop.",
            f"{count} times",
        )


def _census(lines: list[tuple[dict[str, Any], int, int]]) -> Counter[tuple[str, int]]:
    counts: Counter[tuple[str, int]] = Counter()
    for place, count, _ in lines:
        counts[place["file"], place["line"]] += count
    return counts


def earlier_census() -> Counter[tuple[str, int]] | None:
    """Tensors alive by line, at the newest sample that at least half of the syncs came after."""
    steps = _C.step()
    for sync, lines in reversed(_C.census_samples()):
        if sync * 2 <= steps:
            return _census(lines)
    return None


def _leaks(steps: int) -> Iterator[Finding]:
    samples = [(sync, _census(lines)) for sync, lines in _C.census_samples()][-4:]
    if len(samples) < _OFTEN:
        return
    sizes: Counter[tuple[str, int]] = Counter()
    places: dict[tuple[str, int], Place] = {}
    live = _C.live_lines()
    for p, _, nbytes in live:
        places[p["file"], p["line"]] = _place(p)
        sizes[p["file"], p["line"]] += nbytes
    for at, count in _census(live).items():
        series = [census[at] for _, census in samples]
        grown = count - series[0]
        grows = all(a < b for a, b in itertools.pairwise(series)) and count >= series[-1]
        if not grows or grown < max(_OFTEN, (steps - samples[0][0]) // 10):
            continue
        yield Finding(
            "leak",
            "bad",
            "Tensors pile up",
            f"{count} tensors made here are alive, {grown} more than {steps - samples[0][0]} syncs "
            f"ago: {metrics.size_text(sizes[at])}.",
            places[at],
            "Keep float(x) or x.detach().cpu() instead of the tensor; a loss holds its graph.",
            f"+{grown} tensors",
        )


def _gathered() -> Iterator[Finding]:
    """Weights that are cut over devices, and put together on each of them in every step."""
    if not _C.client_exists():
        return
    from . import _sharded

    seen: set[tuple[str, str]] = set()
    for g in _sharded.gathered():
        if g.runs < _OFTEN or (g.place.text, g.type) in seen:
            continue
        seen.add((g.place.text, g.type))
        at = f" (at {g.line})" if g.line else ""
        yield Finding(
            "gathered weight",
            "warn",
            "A sharded tensor is gathered whole in each step",
            f"{g.type} of {g.place} is cut over devices, but the program needs all of it on each "
            f"of them{at}: {metrics.size_text(g.bytes)} in each of {g.runs} runs.",
            g.place,
            "Cut it along a dimension that the operation does not sum over, constrain the other "
            "operand with spmd.mark_sharding, or leave it whole: spmd.clear_sharding(t).",
            f"{metrics.size_text(g.bytes)} a step",
        )


def find(e: Explanation, steps: int) -> list[Finding]:
    """All findings, the bad ones first."""
    found = [
        *_unsynced(e),
        *_shapes(e),
        *_fresh(e),
        *_numbers(e),
        *_leaks(steps),
        *_strays(e),
        *_items(e, steps),
        *_cpu(e),
        *_gathered(),
    ]
    return sorted(found, key=lambda f: f.severity != "bad")
