"""torch_xla.debug.metrics, of torch_pjrt.metrics."""

from typing import Any

from .. import _XLAC, _counts

__all__ = [
    "clear_all", "clear_counters", "clear_metrics", "counter_names", "counter_value",
    "executed_fallback_ops", "metric_data", "metric_names", "metrics_report",
    "short_metrics_report",
]  # fmt: skip


def counter_names() -> list[str]:
    return _XLAC._xla_counter_names()


def counter_value(name: str) -> int | None:
    return _XLAC._xla_counter_value(name)


def metric_names() -> list[str]:
    return _XLAC._xla_metric_names()


def metric_data(name: str) -> Any:
    """(count, sum in nanoseconds or bytes, samples); None for a name without data."""
    return _XLAC._xla_metric_data(name)


def metrics_report() -> str:
    return _counts.report()


def short_metrics_report(
    counter_names: list[str] | None = None, metric_names: list[str] | None = None
) -> str:
    return _counts.short(counter_names, metric_names)


def executed_fallback_ops() -> list[str]:
    return _XLAC._get_executed_fallback_ops()


def clear_counters() -> None:
    _counts.clear(counters=True)


def clear_metrics() -> None:
    _counts.clear(metrics=True)


def clear_all() -> None:
    _counts.clear(counters=True, metrics=True)
