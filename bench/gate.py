"""Budgets of a benchmark: what was measured beside what it may be, and an exit status.

`make nightly` runs benchmarks with `--check`; without it they print and end well.
"""

import sys

__all__ = ["Gate"]


class Gate:
    """Collects measured figures and their budgets; `verdict()` prints those that are over."""

    def __init__(self, check: bool) -> None:
        self._check = check
        self._over: list[str] = []

    def most(self, what: str, measured: float, budget: float) -> None:
        """`measured` may be at most `budget`."""
        if measured > budget:
            self._over.append(f"{what}: {measured:.3g}, budget {budget:.3g}")

    def verdict(self) -> int:
        """The exit status: 1 where a figure is over its budget and was asked about."""
        for line in self._over:
            print(f"over budget: {line}", file=sys.stderr)
        return 1 if self._check and self._over else 0
