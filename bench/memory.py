"""Resident memory of a long training loop: it must not grow.

Trains a small network for `--steps` steps, full syncs with a read now and then, and prints resident
memory along the way. `--check` makes the exit status say whether it stayed within 1 %.
"""

import argparse
import gc
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import torch_pjrt

WARM_UP = 500


def resident_kib() -> int:
    """Memory of the process, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def main() -> int:
    """Command line: see --help."""
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=10_000)
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10)
    model = nn.Sequential(*layers).to("xla")
    optimizer = torch.optim.AdamW(model.parameters())
    data, labels = torch.randn(32, 64).to("xla"), torch.randint(10, (32,)).to("xla")

    def train(steps: int) -> None:
        for i in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(data), labels)
            loss.backward()
            optimizer.step()
            torch_pjrt.sync()
            if i % 50 == 0:
                loss.item()
        torch_pjrt.sync(wait=True)
        gc.collect()

    train(WARM_UP)
    first, most = resident_kib(), 0
    device = torch_pjrt.memory()["live_bytes"]
    start = time.perf_counter()
    for part in range(10):
        train(args.steps // 10)
        most = max(most, resident_kib())
        print(f"{(part + 1) * args.steps // 10:>7} steps: {resident_kib()} KiB", flush=True)
    growth = most / first - 1
    met = growth <= 0.01 and torch_pjrt.memory()["live_bytes"] == device
    spent = (time.perf_counter() - start) / args.steps
    print(
        f"{args.steps} training steps of {spent * 1e3:.2f} ms: {first} KiB resident at the start, "
        f"{most} at most ({growth * 100:+.2f} %, budget 1 %); {device} bytes on the device before, "
        f"{torch_pjrt.memory()['live_bytes']} after; {torch_pjrt.metrics.compiles()} programs"
        f"{'' if met else '  over'}"
    )
    return 1 if args.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
