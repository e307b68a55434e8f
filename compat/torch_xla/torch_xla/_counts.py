"""Counters and metrics by torch_xla's names, of torch_pjrt's."""

import contextlib
from collections.abc import Iterator
from typing import Any

from torch_pjrt import _C
from torch_pjrt import metrics as _ours
from torch_pjrt._compile import graphs_compiled

__all__ = ["add", "clear", "counters", "metrics", "report"]

# torch_xla's name: ours. Counters that have no such name keep their own.
_COUNTERS = {
    "CachedCompile": "CompileCacheHit",
    "UncachedCompile": "UncachedCompile",
    "StableHloCompile": "UncachedCompile",  # all programs are compiled from StableHLO
    "ExecuteComputation": "Execute",
    "DynamoSyncInputExecuteTime": "CompiledInputSync",
}
_GRAPHS = "DynamoExtractCompiledGraph"  # of torch.compile and dynamo_bridge
_METRICS = {
    "CompileTime": "Compile",
    "ExecuteTime": "Execute",
    "ExecuteReplicatedTime": "ExecuteReplicated",
    "TransferToDeviceTime": "TransferToDevice",
    "TransferFromDeviceTime": "TransferFromDevice",
    "TensorToData": "TransferToDevice",
}
_BYTES = {"OutboundData": "TransferToDevice", "InboundData": "TransferFromDevice"}
# One sample a call of a compiled function. Its sum is 0: a call's data is not timed by itself.
_CALLS = ("RunCachedGraphInputData", "RunCachedGraphOutputData")
_EAGER = {"CompileTime": "Compile", "ExecuteTime": "Execute"}
_SHORT_METRICS = (
    "CompileTime", "ExecuteTime", "ExecuteReplicatedTime", "TransferToDeviceTime",
    "TransferFromDeviceTime",
)  # fmt: skip
_SHORT_COUNTERS = (
    "CachedCompile", "MarkStep", "UncachedCompile", "GraphCut", "DynamoSyncInputExecuteTime",
)  # fmt: skip
_own: dict[str, int] = {}
_in_functions: dict[str, tuple[int, float]] = {}  # of _EAGER, by our name
_since: dict[str, dict[str, Any]] = {"counters": {}, "times": {}, "bytes": {}, "calls": {}}


def add(name: str, value: int = 1) -> None:
    """Counts what is counted here only."""
    _own[name] = _own.get(name, 0) + value


def clear(counters: bool = False, metrics: bool = False) -> None:
    """From now on they count from zero. Ours go on."""
    if counters:
        _own.clear()
        _since["counters"] = _all()
    if metrics:
        _since["times"] = _ours.timers()
        _in_functions.clear()
        _since["bytes"] = {n: _amount(n) for n in set(_BYTES.values())}
        _since["calls"] = {"CompiledCall": _ours.counters().get("CompiledCall", 0)}


def _all() -> dict[str, int]:
    """torch_pjrt's, from its start."""
    return {**_ours.counters(), _GRAPHS: len(graphs_compiled())}


def counters() -> dict[str, int]:
    """Those that are not zero."""
    before = _since["counters"]
    found = {n: v - before.get(n, 0) for n, v in _all().items()}
    found = {n: v for n, v in found.items() if v > 0}
    named = {theirs: found[own] for theirs, own in _COUNTERS.items() if own in found}
    graphs = _own.get(_GRAPHS, 0) + found.get(_GRAPHS, 0)
    return {**found, **named, **_own, **({_GRAPHS: graphs} if graphs else {})}


@contextlib.contextmanager
def in_function() -> Iterator[None]:
    """What is compiled and run inside is, in eager mode, no op of its own."""
    before = _ours.timers() if _C.eager_mode() else None
    try:
        yield
    finally:
        if before is not None:
            now = _ours.timers()
            for name in _EAGER.values():
                count, seconds = _grown(now.get(name, (0, 0.0)), before.get(name))
                had = _in_functions.get(name, (0, 0.0))
                _in_functions[name] = (had[0] + count, had[1] + seconds)


def _amount(name: str) -> tuple[int, float]:
    values = _ours._C.accumulators().get(name, (0, 0.0, {}))
    return values[0], values[1]


def _grown(now: tuple[int, float], before: Any) -> tuple[int, float]:
    count, total = before or (0, 0.0)
    return now[0] - count, now[1] - total


def metrics() -> dict[str, tuple[int, float, tuple[Any, ...]]]:
    """(how often, sum, samples): nanoseconds of times, bytes of data. Samples are not kept."""
    now, before = _ours.timers(), _since["times"]
    grown = {n: _grown(v, before.get(n)) for n, v in now.items()}
    times = {t: grown[own] for t, own in _METRICS.items() if own in grown}
    times |= {n: v for n, v in grown.items() if n not in _METRICS.values()}
    if _C.eager_mode():  # each op is a program, but for those of compiled functions
        for theirs, own in _EAGER.items():
            functions = _in_functions.get(own, (0, 0.0))
            times[f"EagerOp{theirs}"] = _grown(times.get(theirs, (0, 0.0)), functions)
            times[theirs] = functions
    found = {n: (c, total * 1e9, ()) for n, (c, total) in times.items() if c > 0}
    donated, programs = counters().get("DonatedBuffers", 0), found.get("CompileTime", (0,))[0]
    if programs or donated:  # how many buffers programs were given to overwrite
        found["InputOutputAliasCount"] = (programs or 1, float(donated), ())
    calls = _ours.counters().get("CompiledCall", 0) - _since["calls"].get("CompiledCall", 0)
    if calls > 0:
        found |= dict.fromkeys(_CALLS, (calls, 0.0, ()))
    for theirs, own in _BYTES.items():
        count, total = _grown(_amount(own), _since["bytes"].get(own))
        if count > 0:
            found[theirs] = (count, total, ())
    return found


def _time(ns: float) -> str:
    return f"{ns / 1e9:.6f}s" if ns >= 1e9 else f"{ns / 1e6:.3f}ms"


def report(counter_names: list[str] | None = None, metric_names: list[str] | None = None) -> str:
    """All, or those named; fallbacks in any case."""
    lines = []
    for name, (count, total, _) in metrics().items():
        if metric_names is None or name in metric_names:
            text = _time(total)
            if name in (*_BYTES, "InputOutputAliasCount"):
                text = f"{total / 2**20:.2f}MB" if name in _BYTES else f"{total:.2f}"
            lines += [f"Metric: {name}", f"  TotalSamples: {count}", f"  Accumulator: {text}"]
    for name, value in sorted(counters().items()):
        if counter_names is None or name in counter_names or name.startswith("aten::"):
            lines += [f"Counter: {name}", f"  Value: {value}"]
    return "\n".join(lines) + "\n"


def short(counter_names: list[str] | None, metric_names: list[str] | None) -> str:
    """The few that tell whether a loop is healthy, or those named."""
    return report(list(counter_names or _SHORT_COUNTERS), list(metric_names or _SHORT_METRICS))
