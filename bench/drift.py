"""How far float32 losses of a ResNet drift from float64's: eager with 1 and 2 threads, and ours.

Ten steps of a ResNet-18 for 32x32 images. Float32 rounds; now and then a rounding flips a ReLU, and
training amplifies that. In float64 nothing flips, and ours has eager's losses (`--float64`, slow).
See docs/design/0005-losses-in-float32.md.
"""

import argparse
import contextlib
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.c1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.c2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.b1, self.b2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.short = nn.Sequential()
        if stride > 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to images, smaller where there is a stride."""
        y = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        return F.relu(y + self.short(x))


def network(width: int) -> nn.Module:
    """A ResNet-18 with the stem of small images."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)]
    layers.append(nn.ReLU())
    inputs = width
    for i in range(4):
        outputs = width << i
        layers += [Block(inputs, outputs, 2 if i else 1), Block(outputs, outputs, 1)]
        inputs = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10)]
    return nn.Sequential(*layers)


def losses(device: str, dtype: torch.dtype, width: int, steps: int) -> list[float]:
    """The losses of `steps` steps of SGD on four batches of random images."""
    torch.manual_seed(0)
    model = network(width).to(dtype)
    data = [(torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))) for _ in range(4)]
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    out = []
    for i in range(steps):
        x, y = data[i % 4]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device, dtype)), y.to(device))
        loss.backward()
        optimizer.step()
        out.append(loss.detach())
        torch_pjrt.sync()
    return [float(v) for v in out]


@contextlib.contextmanager
def threads(n: int) -> Iterator[None]:
    """Eager uses n threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    yield
    torch.set_num_threads(before)


def main() -> None:
    """Command line: see --help."""
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--width", type=int, default=64)
    ap.add_argument("--steps", type=int, default=10)
    ap.add_argument("--float64", action="store_true", help="ours in float64 too")
    args = ap.parse_args()
    shape = args.width, args.steps
    with threads(2):
        exact = losses("cpu", torch.float64, *shape)
        runs = {"eager, 2 threads": losses("cpu", torch.float32, *shape)}
    with threads(1):
        runs["eager, 1 thread"] = losses("cpu", torch.float32, *shape)
    runs["ours"] = losses("xla", torch.float32, *shape)
    if args.float64:
        runs["ours, float64"] = losses("xla", torch.float64, *shape)
    print("distance of each step's loss from eager's in float64, relative")
    for name, found in runs.items():
        away = [f"{abs(a - b) / abs(b):8.0e}" for a, b in zip(found, exact, strict=True)]
        print(f"{name:<18}" + "".join(away))


if __name__ == "__main__":
    main()
