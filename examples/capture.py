"""A training step as usual, and the same step captured: equal losses, less time on the host."""

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_pjrt


def make(seed: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A training step of a small classifier."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    model = model.to("xla")
    # fused: the optimizer's step count is on the device, so that a replay counts on.
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        opt.step()
        return loss

    return step


def train(step: Callable[[Tensor, Tensor], Tensor], steps: int) -> tuple[list[float], float]:
    """Losses, and the best time that a call of the step took on the host, in milliseconds."""
    torch.manual_seed(1)
    best, losses = float("inf"), []
    for _ in range(steps):
        x, y = torch.randn(32, 64).to("xla"), torch.randint(0, 10, (32,)).to("xla")
        torch_pjrt.wait()
        start = time.perf_counter()
        losses.append(step(x, y))
        torch_pjrt.sync()
        best = min(best, time.perf_counter() - start)
    return [v.item() for v in losses], best * 1e3


def main() -> None:
    """Trains twice from the same seed and compares."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--steps", type=int, default=60)
    opts = p.parse_args()
    plain, lazy_ms = train(make(0), opts.steps)
    ours, captured_ms = train(torch_pjrt.capture(make(0)), opts.steps)
    worst = max(abs(a - b) for a, b in zip(plain, ours, strict=True))
    print(f"{opts.steps} steps, last loss {plain[-1]:.4f}; largest difference {worst:.1e}")
    print(f"host time of a step: lazy {lazy_ms:.2f} ms, captured {captured_ms:.2f} ms")
    assert worst < 1e-5  # noqa: S101


main()
