"""A process that takes part in plugins.py or memory.py, of whatever Python.

It trains, and answers on stdout.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import SupportsFloat

__all__ = ["nothing", "serve"]


def nothing() -> dict[str, float]:
    """No further figures."""
    return {}


def serve(
    train: Callable[[int], SupportsFloat],
    steps: int,
    more: Callable[[], dict[str, float]] = nothing,
) -> None:
    """A line for the first step, then one for each line it is sent. `train(n)`: the last loss.

    Of a line: `step`, `cpu` (seconds a step), `faults` (minor page faults a step), `rss` (MB, the
    most ever), `loss`, and what `more` says.
    """

    def run(count: int) -> dict[str, float]:
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        loss = train(count)
        spent, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        return {
            "step": spent / count,
            "cpu": cpu / count,
            "faults": (after.ru_minflt - before.ru_minflt) / count,
            "rss": after.ru_maxrss / 1024,
            "loss": float(loss),
            **more(),
        }

    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps(run(1)), file=answers, flush=True)
    run(3)
    for _ in sys.stdin:
        print(json.dumps(run(steps)), file=answers, flush=True)
    os._exit(0)
