"""Counters and timers: what was recorded, compiled, run, cut and copied so far."""

from collections.abc import Iterable

from . import _C

__all__ = ["clear", "compiles", "counters", "data", "report", "short_report", "timers"]

# A line for each crossing of the seam (docs/seam.md); other timers are our own half.
_SEAM = {
    "Compile": "compile",
    "Execute": "execute",
    "ExecuteReplicated": "replicated execute",
    "TransferToDevice": "transfer to the device",
    "TransferFromDevice": "transfer from the device",
    "Serialize": "store a program",
    "Deserialize": "load a program",
}
_SHORT = ("CompileCacheHit", "CompileCacheMiss", "Recompile", "GraphCut", "Sync")

Amounts = tuple[int, float, dict[float, float]]


def counters() -> dict[str, int]:
    """The counters that are not zero, by name. `aten::...` are ops that ran on the CPU instead."""
    return _C.counters()


def timers() -> dict[str, tuple[int, float]]:
    """Name -> (how often, seconds in all)."""
    return _C.timers()


def data(name: str) -> Amounts | None:
    """(how often, sum, {share: percentile}) of a timer (seconds) or an accumulator (bytes)."""
    return {**_C.accumulators(), **_C.timer_values()}.get(name)


def clear() -> None:
    """Sets all counters and timers to zero."""
    _C.clear_metrics()


def compiles() -> int:
    """Programs whose compile began since the start, or since `clear`."""
    return counters().get("CompileBegun", 0)


def _time(seconds: float) -> str:
    for unit, scale in (("s ", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.1f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def size_text(count: float) -> str:
    """Bytes for people: "1.5 MiB"."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} B"


def _table(title: str, rows: dict[str, Amounts], show: type | None = None) -> Iterable[str]:
    """Rows of count, sum and percentiles; nothing where there are none."""
    if not rows:
        return
    text = size_text if show is int else _time
    yield f"{title:<28}{'times':>9}{'sum':>11}{'1%':>11}{'50%':>11}{'95%':>11}{'99%':>11}"
    for name, (count, total, shares) in rows.items():
        cells = "".join(f"{text(shares[s]):>11}" for s in (0.01, 0.5, 0.95, 0.99))
        yield f"  {name:<26}{count:>9}{text(total):>11}{cells}"
    yield ""


def report() -> str:
    """All of it as text: the two halves of the seam, bytes moved, counters."""
    values = _C.timer_values()
    seam = {_SEAM[n]: v for n, v in values.items() if n in _SEAM}
    ours = {n: v for n, v in values.items() if n not in _SEAM}
    lines = [
        *_table("above the seam (ours)", ours),
        *_table("at the seam (the plugin)", seam),
        *_table("bytes across the seam", _C.accumulators(), int),
        f"{'counter':<40}{'value':>12}",
    ]
    lines += [f"  {name:<38}{value:>12}" for name, value in sorted(counters().items())]
    return "\n".join(lines)


def short_report() -> str:
    """The few numbers that say whether a loop is healthy."""
    found = timers()
    compiled, seconds = found.get("Compile", (0, 0.0))
    ran, spent = found.get("Execute", (0, 0.0))
    lines = [
        f"compiled {compiled} programs in {_time(seconds).strip()}",
        f"launched {ran} programs, {_time(spent / ran if ran else 0.0).strip()} each",
    ]
    counts = counters()
    lines += [f"{name}: {counts[name]}" for name in _SHORT if name in counts]
    on_cpu = {n: c for n, c in counts.items() if n.startswith(("aten::", "hostop::"))}
    lines += [f"on the CPU: {name}: {count}" for name, count in sorted(on_cpu.items())]
    return "\n".join(lines)
