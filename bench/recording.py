"""What recording an op costs beside eager CPU, what the user's line adds, what a cached sync costs.

Eager and recording take turns within one run, one thread, 8x8 tensors; each number is the least of
many rounds. `--check` makes the exit status say whether the budgets are met. See `make bench`.
"""

import argparse
import gc
import itertools
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import programs_only  # noqa: F401 - before torch_pjrt
import torch
import torch.nn.functional as F

os.environ["TORCH_PJRT_SPLIT_NODES"] = "0"  # the chain of cached_sync stays one graph

import torch_pjrt

Args = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """One op on ready-made arguments; `budget` is (no grad, grad), as a ratio to eager."""

    name: str
    call: Callable[..., Any]
    make: Callable[[Callable[..., torch.Tensor]], Args]
    budget: tuple[float, float]


OP, VIEW = (0.7, 0.85), (1.2, 1.2)
# Budgets that docs/performance.md says are not met, without grad: what they may not fall behind.
MISSED = {"add": 0.78, "mul": 0.76, "view": 1.36}
CASES = (
    Case("add", torch.add, lambda t: (t(8, 8), t(8, 8)), OP),
    Case("mul", torch.mul, lambda t: (t(8, 8), t(8, 8)), OP),
    Case("mm", torch.mm, lambda t: (t(8, 8), t(8, 8)), OP),
    Case("relu", torch.relu, lambda t: (t(8, 8),), OP),
    Case("sum", torch.sum, lambda t: (t(8, 8), 1), OP),
    Case("layer_norm", F.layer_norm, lambda t: (t(8, 8), (8,), t(8), t(8)), OP),
    Case("conv2d", torch.conv2d, lambda t: (t(1, 4, 8, 8), t(4, 4, 3, 3), t(4)), OP),
    Case("view", torch.Tensor.view, lambda t: (t(8, 8), 64), VIEW),
    Case("transpose", torch.transpose, lambda t: (t(8, 8), 0, 1), VIEW),
    Case("select", torch.select, lambda t: (t(8, 8), 0, 3), VIEW),
    Case("slice", torch.narrow, lambda t: (t(8, 8), 0, 2, 4), VIEW),
)


def time_calls(call: Callable[..., Any], args: Args, count: int) -> float:
    """Microseconds a call."""
    start = time.perf_counter()
    for _ in itertools.repeat(None, count):
        call(*args)
    return (time.perf_counter() - start) / count * 1e6


def arguments(case: Case, device: str, grad: bool) -> Args:
    """The case's arguments on a device, their values already computed."""

    def tensor(*shape: int) -> torch.Tensor:
        made = torch.linspace(-1, 1, int(torch.Size(shape).numel())).view(shape).to(device)
        return made.requires_grad_(grad)

    args = case.make(tensor)
    torch_pjrt.sync(wait=True)
    return args


def measure(case: Case, grad: bool, rounds: int, count: int) -> tuple[float, float]:
    """(eager, recording) in microseconds, the least of interleaved rounds."""
    eager, record = arguments(case, "cpu", grad), arguments(case, "xla", grad)
    mode: AbstractContextManager[Any] = torch.enable_grad() if grad else torch.no_grad()
    best = [float("inf"), float("inf")]
    with mode:
        for _ in range(rounds):
            for i, args in enumerate((eager, record)):
                best[i] = min(best[i], time_calls(case.call, args, count))
    return best[0], best[1]


def recording(rounds: int, count: int) -> bool:
    """Prints the table; whether every budget is met, or what stands in MISSED."""
    print(f"{'op':<12}{'grad':>6}{'eager us':>10}{'record us':>11}{'ratio':>8}{'budget':>8}")
    met = True
    for case, grad in itertools.product(CASES, (False, True)):
        eager, record = measure(case, grad, rounds, count)
        ratio, budget = record / eager, case.budget[grad]
        met = met and ratio <= (budget if grad else MISSED.get(case.name, budget))
        print(
            f"{case.name:<12}{'yes' if grad else 'no':>6}{eager:>10.2f}{record:>11.2f}"
            f"{ratio:>8.2f}{budget:>8.2f}{'' if ratio <= budget else '  over'}",
            flush=True,
        )
    return met


def frames(rounds: int, count: int) -> bool:
    """Prints what it costs that each op keeps the user's line; whether the mean is within 10 %.

    `API`: with frames asked of Python's public API, as with a Python whose frames are unknown.
    """
    names = f"{'op':<12}{'grad':>6}{'off us':>10}{'on us':>11}{'API us':>11}"
    print(f"\n{names}{'on':>8}{'API':>8}   with the user's line")
    sums = [0.0, 0.0]
    for case, grad in itertools.product(CASES, (False, True)):
        args = arguments(case, "xla", grad)
        mode: AbstractContextManager[Any] = torch.enable_grad() if grad else torch.no_grad()
        best = [float("inf")] * 3
        with mode:
            for i in range(3 * rounds):
                torch_pjrt._C.set_frames_on(i % 3 > 0)
                torch_pjrt._C.set_frames_direct(i % 3 < 2)
                best[i % 3] = min(best[i % 3], time_calls(case.call, args, count))
        ratios = [b / best[0] for b in best[1:]]
        sums = [s + r for s, r in zip(sums, ratios, strict=True)]
        print(
            f"{case.name:<12}{'yes' if grad else 'no':>6}{best[0]:>10.2f}{best[1]:>11.2f}"
            f"{best[2]:>11.2f}{ratios[0]:>8.2f}{ratios[1]:>8.2f}",
            flush=True,
        )
    torch_pjrt._C.set_frames_on(True)
    torch_pjrt._C.set_frames_direct(True)
    mean, by_api = (s / 2 / len(CASES) for s in sums)
    print(
        f"mean {mean:.3f} (budget 1.10), by the API {by_api:.3f}{'' if mean <= 1.1 else '  over'}"
    )
    return mean <= 1.1


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """1,000 ops that XLA cannot fuse into one."""
    for _ in range(250):
        x = torch.tanh(torch.mm(x, w) + x) * w
    return x


@torch.no_grad()
def cached_sync(rounds: int) -> bool:
    """Prints what a sync costs a node beyond the plugin's own execute call; whether that is met."""
    x, w = torch.eye(8).to("xla"), torch.full((8, 8), 0.1).to("xla")
    torch_pjrt.sync(wait=True)
    least, execute, nodes = float("inf"), 0.0, 1
    for _ in range(rounds):
        out = chain(x, w)
        torch_pjrt.metrics.clear()
        start = time.perf_counter()
        torch_pjrt.sync()
        spent = time.perf_counter() - start
        torch_pjrt.wait()
        inside = torch_pjrt.metrics.timers()["Execute"][1]
        if spent - inside < least:
            least, execute = spent - inside, inside
        last = torch_pjrt.graph.last()
        nodes = last.nodes if last else 1
        del out
    each, budget = least / nodes * 1e9, 60.0
    print(
        f"\nsync of a cached graph of {nodes} nodes: {each:.0f} ns a node (budget {budget:.0f}) "
        f"beyond {execute * 1e6:.0f} us in the plugin{'' if each <= budget else '  over'}"
    )
    return each <= budget


def main() -> int:
    """Command line: see --help."""
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--rounds", type=int, default=40)
    ap.add_argument("--count", type=int, default=300)
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    gc.collect()
    gc.disable()
    met = [
        recording(args.rounds, args.count),
        frames(args.rounds, args.count),
        cached_sync(args.rounds),
    ]
    return 1 if args.check and not all(met) else 0


if __name__ == "__main__":
    sys.exit(main())
