"""torch_xla.debug.metrics, of torch_pjrt.metrics."""

from typing import Any

from torch_pjrt import metrics

from .. import _XLAC

__all__ = [
    "clear_all", "clear_counters", "clear_metrics", "counter_names", "counter_value",
    "executed_fallback_ops", "metric_data", "metric_names", "metrics_report",
    "short_metrics_report",
]  # fmt: skip


def counter_names() -> list[str]:
    return list(metrics.counters())


def counter_value(name: str) -> int | None:
    return metrics.counters().get(name)


def metric_names() -> list[str]:
    return list(metrics.timers())


def metric_data(name: str) -> Any:
    """(count, sum in nanoseconds, samples as (time, value)); None for a name without data."""
    found = metrics.timers().get(name)
    if found is None:
        return None
    count, seconds = found
    return count, seconds * 1e9, ()


def metrics_report() -> str:
    return metrics.report()


def short_metrics_report(
    counter_names: list[str] | None = None, metric_names: list[str] | None = None
) -> str:
    return metrics.short_report()


def executed_fallback_ops() -> list[str]:
    return _XLAC._get_executed_fallback_ops()


def clear_all() -> None:
    metrics.clear()


clear_counters = clear_metrics = clear_all
