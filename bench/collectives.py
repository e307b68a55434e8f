"""What a collective costs above gloo's own: `python bench/collectives.py [--json]`.

Two processes all-reduce the same tensor: CPU tensors over gloo, and xla tensors, where the call is
an instruction of a program. What the instruction adds is the difference between programs with
`CALLS` collectives and with none, by call; rounds are taken in turns, because machines drift.
"""

import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import programs_only  # noqa: F401 - before torch_pjrt
import torch
import torch.distributed as dist
from gate import Gate

import torch_pjrt

SIZES = (1, 1024, 65536)  # of float32
CALLS, ROUNDS = 8, 15


def micros(f: Callable[[], object]) -> float:
    """Microseconds of a call."""
    start = time.perf_counter()
    f()
    return 1e6 * (time.perf_counter() - start)


def programs(elements: int) -> tuple[Callable[[], None], Callable[[], None], Callable[[], None]]:
    """A gloo loop, a program of CALLS collectives and one of none that computes as much."""
    plain = torch.ones(elements)
    on_device = torch.ones(elements).to("xla")

    def gloo() -> None:
        for _ in range(CALLS):
            plain.mul_(0.5)
            dist.all_reduce(plain, group=GLOO[0])

    def run(calls: int) -> None:
        for _ in range(CALLS):
            on_device.mul_(0.5)
            if calls:
                dist.all_reduce(on_device)
            else:
                on_device.mul_(2.0)
        torch_pjrt.sync(wait=True)

    return gloo, lambda: run(CALLS), lambda: run(0)


GLOO: list[dist.ProcessGroup] = []


def median_error(values: list[float]) -> float:
    """Half of the median's 95 % interval (McGill, Tukey and Larsen, 1978)."""
    low, _, high = statistics.quantiles(values, n=4)
    return 1.57 * (high - low) / math.sqrt(len(values))


def rank_main() -> None:
    """One rank; rank 0 prints."""
    torch.set_num_threads(1)
    dist.init_process_group("xla")
    GLOO.append(dist.new_group(backend="gloo"))
    found = {}
    for elements in SIZES:
        kinds = programs(elements)
        for f in kinds * 3:
            f()
        rows = []
        for _ in range(ROUNDS):
            row = []
            for f in kinds:
                dist.barrier(group=GLOO[0])
                row.append(micros(f) / CALLS)
            rows.append(row)
        gloo, ours, none = (statistics.median(r[i] for r in rows) for i in range(3))
        above = [r[1] - r[2] - r[0] for r in rows]
        found[elements] = {
            "gloo": gloo,
            "program": ours,
            "without": none,
            "above gloo": statistics.median(above),
            "give or take": median_error(above),
        }
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.barrier(group=GLOO[0])
    dist.destroy_process_group()


def measure() -> dict[str, dict[str, float]]:
    """By number of elements: microseconds of a call."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    env = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    env |= {"OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, __file__, "--rank"],
            env=env | {"RANK": str(r), "LOCAL_RANK": str(r)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    out = [p.communicate(timeout=600)[0] for p in ranks]
    found: dict[str, dict[str, float]] = json.loads(out[0].strip().splitlines()[-1])
    return found


def main() -> int:
    """Prints the table."""
    if "--rank" in sys.argv:
        rank_main()
        return 0
    found = measure()
    if "--json" in sys.argv:
        print(json.dumps(found))
        return 0
    gate = Gate("--check" in sys.argv)
    print(f"{'elements':>9} {'gloo, us':>9} {'above gloo, us':>15} {'give or take':>13}")
    for elements, row in found.items():
        above, error = row["above gloo"], row["give or take"]
        print(f"{elements:>9} {row['gloo']:9.1f} {above:15.1f} {error:13.1f}")
        gate.most(f"all-reduce of {elements} above gloo, us", above, 60 + error)
    return gate.verdict()


if __name__ == "__main__":
    sys.exit(main())
