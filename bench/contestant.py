"""A process that takes part in plugins.py, of whatever Python: it trains, and answers on stdout."""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import SupportsFloat

__all__ = ["serve"]


def serve(train: Callable[[int], SupportsFloat], steps: int) -> None:
    """A line for the first step, then one for each line it is sent. `train(n)`: the last loss."""

    def run(count: int) -> dict[str, float]:
        start, cpu = time.perf_counter(), time.process_time()
        loss = train(count)
        spent = (time.perf_counter() - start) / count, (time.process_time() - cpu) / count
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return {"step": spent[0], "cpu": spent[1], "rss": peak, "loss": float(loss)}

    answers = os.fdopen(os.dup(1), "w")
    print(json.dumps(run(1)), file=answers, flush=True)
    run(3)
    for _ in sys.stdin:
        print(json.dumps(run(steps)), file=answers, flush=True)
    os._exit(0)
