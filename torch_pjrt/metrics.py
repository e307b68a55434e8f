"""Counters and timers: what was recorded, compiled, run, cut and copied so far."""

from . import _C

__all__ = ["clear", "compiles", "counters", "report", "timers"]


def counters() -> dict[str, int]:
    """The counters that are not zero, by name. `aten::...` are ops that ran on the CPU instead."""
    return _C.counters()


def timers() -> dict[str, tuple[int, float]]:
    """Name -> (how often, seconds in all)."""
    return _C.timers()


def clear() -> None:
    """Sets all counters and timers to zero."""
    _C.clear_metrics()


def compiles() -> int:
    """Programs compiled since the start, or since `clear`."""
    return timers().get("Compile", (0, 0.0))[0]


def report() -> str:
    """Counters and timers as text for people."""
    lines = [f"{'timer':<28}{'times':>10}{'total ms':>12}{'mean us':>12}"]
    for name, (count, seconds) in sorted(timers().items()):
        mean = seconds / count * 1e6 if count else 0.0
        lines.append(f"{name:<28}{count:>10}{seconds * 1e3:>12.1f}{mean:>12.1f}")
    lines += ["", f"{'counter':<28}{'value':>10}"]
    lines += [f"{name:<28}{value:>10}" for name, value in sorted(counters().items())]
    return "\n".join(lines)
