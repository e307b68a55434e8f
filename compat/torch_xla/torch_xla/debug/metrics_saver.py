"""The metrics report in a file, where XLA_METRICS_FILE names one."""

import os
from pathlib import Path

from . import metrics


def save_metrics(metrics_file: str | None = None) -> None:
    """Appends; writes nothing where no file is named."""
    to = metrics_file or os.environ.get("XLA_METRICS_FILE", "")
    if to:
        with Path(to).open("a") as f:
            f.write(f"[MetricsData]\n{metrics.metrics_report()}\n")
