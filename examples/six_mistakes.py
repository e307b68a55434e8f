"""A training loop with six classic mistakes, and the page that finds them.

Each mistake is marked. Run it, and open the page it writes:

    python examples/six_mistakes.py report.html
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_pjrt

STEPS = 24
history: list[Tensor] = []


def batches(steps: int) -> list[tuple[Tensor, Tensor]]:
    """Sequences that are as long as they happen to be: mistake 1, growing shapes."""
    generator = torch.Generator().manual_seed(0)
    made = []
    for step in range(steps):
        length = 8 + step // 4
        x = torch.randn(16, length, 32, generator=generator)
        made.append((x, torch.randint(10, (16,), generator=generator)))
    return made


class Classifier(nn.Module):
    """Mean over the sequence, two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(32, 64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        scores: Tensor = self.head(F.gelu(self.hidden(x)).mean(1))
        return scores


def hardest(losses: Tensor, step: int) -> Tensor:
    """The mean of more and more samples; how many is part of the program: mistake 2."""
    return losses.topk(2 + step // 5).values.mean()


def whiteness(x: Tensor) -> Tensor:
    """A penalty that needs an op without a lowering, in the hot loop: mistake 3."""
    with torch_pjrt.no_cuts():  # its check is left to the program: it does not read
        spectrum: Tensor = torch.linalg.eigvalsh(x.T @ x)
    return spectrum.var()


def train(steps: int = STEPS) -> list[float]:
    """Trains, wastefully; the losses."""
    torch.manual_seed(0)
    model = Classifier().to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step, (x, y) in enumerate(batches(steps)):
        optimizer.zero_grad()
        inputs = x.to("xla")
        scores = model(inputs)
        debug = scores.softmax(1) if step % 3 == 0 else None  # mistake 4: alive at some steps only
        with torch.no_grad():
            penalty = whiteness(model.head.weight)
        losses_of_all = F.cross_entropy(scores, y.to("xla"), reduction="none")
        loss = hardest(losses_of_all, step) + 0.01 * penalty
        loss.backward()
        optimizer.step()
        history.append(loss)  # mistake 5: every loss stays alive, with what it holds
        losses.append(loss.item())  # mistake 6: the device waits for Python at each step
        torch_pjrt.sync()
        del debug
    return losses


def main() -> None:
    """Writes the page and says what it found."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "six_mistakes.html")
    losses = train()
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    for finding in torch_pjrt.explain.findings():
        print(f"- {finding}")
    print(f"page: {torch_pjrt.explain.report(path, title='Six classic mistakes')}")


if __name__ == "__main__":
    main()
