"""What SPMD costs on eight CPU devices: `python bench/spmd.py [--json]`.

Recording on sharded tensors against others, and a launch against the plugin's own call; medians of
several rounds.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable

os.environ.setdefault("TORCH_PJRT_CPU_DEVICES", "8")

import torch
from gate import Gate

import torch_pjrt
from torch_pjrt import metrics, spmd

MESH = spmd.Mesh(range(8), (8,), ("d",))
OPS = 400


def chain(x: torch.Tensor) -> torch.Tensor:
    """OPS recorded ops."""
    for _ in range(OPS // 2):
        x = (x + 1) * 0.5
    return x


def median_us(f: Callable[[], object], rounds: int = 15) -> float:
    """Microseconds of a call."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        f()
        times.append(1e6 * (time.perf_counter() - start))
    return statistics.median(times)


def recording() -> float:
    """Recording on a sharded tensor, relative to one that is not."""
    plain = torch.ones(64, 64).to("xla")
    cut = spmd.mark_sharding(torch.ones(64, 64).to("xla"), MESH, ("d", None))
    torch_pjrt.sync(wait=True)
    # Results are dropped unsynced: only recording is timed. Taken in turns, because machines drift.
    pairs = [
        (median_us(lambda: chain(plain), 3), median_us(lambda: chain(cut), 3)) for _ in range(15)
    ]
    return statistics.median(b / a for a, b in pairs)


def launch(arguments: int) -> tuple[float, float]:
    """Microseconds of a whole sync of a known program, and of the plugin's call in it."""
    xs = [
        spmd.mark_sharding(torch.ones(64, 64).to("xla"), MESH, ("d", None))
        for _ in range(arguments)
    ]

    def step() -> None:
        for x in xs:
            x.add_(1)
        torch_pjrt.sync()

    for _ in range(3):
        step()
    torch_pjrt.wait()
    whole, calls = [], []
    for _ in range(300):
        for x in xs:
            x.add_(1)
        before, start = metrics.timers()["ExecuteReplicated"][1], time.perf_counter()
        torch_pjrt.sync()
        whole.append(1e6 * (time.perf_counter() - start))
        calls.append(1e6 * (metrics.timers()["ExecuteReplicated"][1] - before))
        torch_pjrt.wait()
    return statistics.median(whole), statistics.median(calls)


def main() -> int:
    """Prints the numbers."""
    found = {"recording, sharded over not": round(recording(), 3)}
    for arguments in (4, 64):
        whole, call = launch(arguments)
        found[f"sync of {arguments} arguments, us"] = round(whole, 1)
        found[f"its call, {arguments} arguments, us"] = round(call, 1)
        found[f"sync over call, {arguments} arguments"] = round(whole / call, 3)
    if "--json" in sys.argv:
        print(json.dumps(found))
        return 0
    gate = Gate("--check" in sys.argv)
    for name, value in found.items():
        print(f"{name:40} {value}")
        # The plugin's call of 4 arguments takes twice as long in some processes; ours is 25-30 us.
        if " over " in name:
            small = name.endswith(" 4 arguments")
            gate.most(name, value, 1.05 if name.startswith("recording") else 1.45 if small else 1.3)
    return gate.verdict()


if __name__ == "__main__":
    sys.exit(main())
