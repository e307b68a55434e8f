"""Trains a small CNN on scikit-learn's 1,797 handwritten digits, on `xla` and beside it on the CPU.

Both start from the same weights and see the same batches, so their losses can be compared. Their
steps take turns, so their times can be compared too. Run it with `make demo`.
"""

import argparse
import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import torch_pjrt

BATCH, COMPARED = 64, 20


@dataclass
class Data:
    """Images 1x8x8 in 0..1 and their digits; 80 % to train on."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor

    @staticmethod
    def load(seed: int) -> "Data":
        """Splits the images by a seeded shuffle."""
        images, digits = load_digits(return_X_y=True)
        x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
        y = torch.tensor(digits)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        train, test = order[: len(x) * 4 // 5], order[len(x) * 4 // 5 :]
        return Data(x[train], y[train], x[test], y[test])

    def batches(self, generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
        """One epoch of whole batches, shuffled."""
        order = torch.randperm(len(self.train_x), generator=generator)
        picks = [p for p in order.split(BATCH) if len(p) == BATCH]
        return [(self.train_x[p], self.train_y[p]) for p in picks]


def make_model(seed: int) -> nn.Module:
    """Two convolutions and two linear layers: 150,000 parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


@dataclass
class Trainer:
    """One model with its optimizer on one device."""

    model: nn.Module
    device: torch.device
    steps: int
    times: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    unread: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model.to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.steps)

    def step(self, x: Tensor, y: Tensor) -> None:
        """Trains on one batch; its time includes waiting for the device."""
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
        loss.backward()
        self.optimizer.step()
        if self.device.type == "xla":
            torch_pjrt.sync(wait=True)
        self.times.append(time.perf_counter() - start)
        self.schedule.step()
        self.unread.append(loss.detach())

    def read_losses(self) -> list[float]:
        """The losses since the last call: computed already, so that reading cuts no graph."""
        new, self.unread = [loss.item() for loss in self.unread], []
        self.losses += new
        return new

    @torch.no_grad()
    def accuracy(self, x: Tensor, y: Tensor) -> float:
        """The share of right answers."""
        guesses = self.model(x.to(self.device)).argmax(1)
        right = (guesses == y.to(self.device)).float().mean()
        if self.device.type == "xla":
            torch_pjrt.sync()
        return float(right.item())


def train(data: Data, epochs: int, seed: int) -> tuple[Trainer, Trainer]:
    """Runs both trainers side by side and prints a line an epoch."""
    steps = epochs * (len(data.train_x) // BATCH)
    xla = Trainer(make_model(seed), torch_pjrt.device(), steps)
    cpu = Trainer(make_model(seed), torch.device("cpu"), steps)
    generator, start = torch.Generator().manual_seed(seed), time.perf_counter()
    for epoch in range(1, epochs + 1):
        batches = data.batches(generator)
        for trainer in (
            xla,
            cpu,
        ):  # in turns of an epoch: neither's threads wait beside the other's
            for x, y in batches:
                trainer.step(x, y)
        losses, _ = xla.read_losses(), cpu.read_losses()
        loss, right = sum(losses) / len(losses), xla.accuracy(data.test_x, data.test_y)
        seconds = time.perf_counter() - start
        line = f"epoch {epoch:2}/{epochs}  loss {loss:.4f}  test accuracy {right:6.2%}"
        print(f"{line}  {seconds:.1f} s", flush=True)
    return xla, cpu


def median_ms(times: list[float]) -> float:
    """The middle of the steps after the first two, in milliseconds."""
    steady = sorted(times[2:])
    return steady[len(steady) // 2] * 1e3


def print_table(data: Data, xla: Trainer, cpu: Trainer) -> None:
    """What the run showed."""
    counters = torch_pjrt.metrics.counters()
    fallbacks = sum(n for name, n in counters.items() if name.startswith("aten::"))
    pairs = zip(xla.losses[:COMPARED], cpu.losses[:COMPARED], strict=True)
    apart = max(abs(a - b) for a, b in pairs)
    accuracy = [t.accuracy(data.test_x, data.test_y) for t in (xla, cpu)]
    rows = [
        ("test accuracy", *(f"{a:.2%}" for a in accuracy)),
        ("first step, ms", *(f"{t.times[0] * 1e3:.1f}" for t in (xla, cpu))),
        ("steady step, ms", *(f"{median_ms(t.times):.2f}" for t in (xla, cpu))),
        ("programs compiled", str(torch_pjrt.metrics.compiles()), "-"),
        ("graph cuts", str(counters.get("GraphCut", 0)), "-"),
        ("ops run on the CPU instead", str(fallbacks), "-"),
        (f"largest loss difference, {COMPARED} steps", f"{apart:.1e}", "-"),
    ]
    print(f"\n{'':<34}{'xla':>10}{'eager CPU':>12}")
    for title, ours, eager in rows:
        print(f"{title:<34}{ours:>10}{eager:>12}")


def main() -> None:
    """Command line: see --help."""
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=15)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    data = Data.load(args.seed)
    print(f"{len(data.train_x)} images to train on, {len(data.test_x)} to test on")
    print_table(data, *train(data, args.epochs, args.seed))


if __name__ == "__main__":
    main()
