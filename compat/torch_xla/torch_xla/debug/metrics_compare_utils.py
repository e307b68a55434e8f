"""Compares metrics reports of several runs."""

import re
import statistics
from collections.abc import Callable
from typing import Any

__all__ = ["compare_metrics", "get_data_points_from_metrics_reports", "parse_metrics_report"]

_SIZES = {"B": 1e-6, "KB": 1e-3, "MB": 1.0, "GB": 1e3, "TB": 1e6, "PB": 1e9}
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SIZE = re.compile(r"([\d.]+)([KMGTP]?B)")
_TIME = re.compile(r"([\d.]+)(ms|us|ns|d|h|m|s)")

Points = dict[str, float | int]


def _number(text: str) -> tuple[float, str]:
    """A value in its base unit, and what that is called."""
    if found := _SIZE.fullmatch(text):
        return float(found[1]) * _SIZES[found[2]], "_mb"
    parts = _TIME.findall(text)
    if parts and "".join(n + u for n, u in parts) == text:
        return sum(float(n) * _SECONDS[u] for n, u in parts), "_sec"
    return float(text), ""


def parse_metrics_report(report: str) -> Points:
    """name__field: value, of each metric and counter."""
    found: Points = {}
    name, is_counter = "", False
    for raw in report.splitlines():
        line = raw.strip()
        if head := re.search(r"(Metric|Counter): (\S+)$", line):
            name, is_counter = head[2], head[1] == "Counter"
        elif name and is_counter and (value := re.fullmatch(r"Value: (\d+)", line)):
            found[f"{name}__Value"] = int(value[1])
        elif name and (count := re.fullmatch(r"TotalSamples: (\d+)", line)):
            found[f"{name}__TotalSamples"] = float(count[1])
        elif name and (total := re.fullmatch(r"Accumulator: (\S+)", line)):
            number, unit = _number(total[1])
            found[f"{name}__Accumulator{unit}"] = number
        elif name and line.startswith("Percentiles: "):
            for share, text in re.findall(r"(\d+)%=([^;\s]+)", line):
                number, unit = _number(text)
                found[f"{name}__Percentile_{share}{unit}"] = number
    return found


def get_data_points_from_metrics_reports(reports: list[str]) -> dict[str, list[Any]]:
    """Of each name a value a report, None where a report lacks it."""
    parsed = [parse_metrics_report(r) for r in reports]
    names = dict.fromkeys(n for p in parsed for n in p)
    return {n: [p.get(n) for p in parsed] for n in names}


def _fails(expression: str, value: Any, mean: Any, deviation: Any) -> bool:
    names = {"v": value, "v_mean": mean, "v_stddev": deviation}
    return not eval(expression, {"__builtins__": {}}, names)  # noqa: S307 - the user's own check


def compare_metrics(
    data_points: dict[str, list[Any]],
    metrics_report: str,
    config: dict[str, str] | None = None,
    print_fn: Callable[[str], Any] | None = None,
) -> str:
    """A line for each value of the report that fails its expression.

    An expression is Python of v, v_mean and v_stddev: `NAME_expression` of the config, else
    `base_expression`. Fallbacks that earlier reports lack are named too.
    """
    config = config or {}
    lines = []
    for name, value in sorted(parse_metrics_report(metrics_report).items()):
        known = [x for x in data_points.get(name, []) if x is not None]
        if not known:
            if name.startswith("aten::"):
                lines.append(f"Found new aten counter: {name}: {value}")
            continue
        mean, deviation = statistics.fmean(known), statistics.pstdev(known)
        expression = config.get(f"{name}_expression") or config.get("base_expression", "True")
        if _fails(expression, value, mean, deviation):
            lines.append(
                f"{name} failed its expression check. Expression: {expression}.  Mean: {mean}.  "
                f"Stddev: {deviation}.  Actual Value: {value}"
            )
    if print_fn is not None:
        for line in lines:
            print_fn(line)
    return "".join(f"{line}\n" for line in lines)
