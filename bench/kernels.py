"""Ops of the measured models by themselves: our program beside eager's kernel.

python bench/kernels.py [--only WORD,...] [--rounds N] [--threads N]: milliseconds of processor time
a call, the least of the rounds, on as many processors as threads; the op, then with its gradients.
Processor time tells more than the clock on a machine with other work.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import programs_only  # noqa: F401 - before torch_pjrt
from gate import Gate

os.environ.setdefault("TORCH_PJRT_CACHE", "off")
os.environ.setdefault("TORCH_PJRT_VERBOSE", "0")

Op = Callable[..., Any]

BUDGET = 1.5  # ours over eager's
# Rows that are over it (docs/performance.md), and what they may not exceed: of short calls the copy
# of the kernel's result into XLA's buffer is a good part; the depthwise gradient's is the page
# faults of blocks that malloc gives back.
MISSED = {
    "conv 3x3, 32x3x32x32, forward": 2.2,
    "conv 3x3, 64x1x8x8 (demo), forward": 2.3,
    "depthwise 3x3, 16x64x28x28, backward": 3.5,
    "layer_norm, 1024x384, forward": 2.4,
    "layer_norm, 1024x384, backward": 2.2,
}


def tensors(*shapes: tuple[int, ...]) -> Callable[[], list[Any]]:
    """Makes random tensors of these shapes."""
    import torch

    return lambda: [torch.randn(s) for s in shapes]


def ids(words: int, n: tuple[int, ...], width: int) -> Callable[[], list[Any]]:
    """A table of `words` rows and indices into it."""
    import torch

    return lambda: [torch.randn(words, width), torch.randint(0, words, n)]


def conv(stride: int = 1, padding: int = 1, groups: int = 1) -> Op:
    """A 2-d convolution."""
    import torch.nn.functional as F

    return lambda x, w: F.conv2d(x, w, None, stride, padding, 1, groups)


def cases() -> dict[str, tuple[Op, Callable[[], list[Any]]]]:
    """What is measured: name to (op, its operands). Operands that are floats get gradients."""
    import torch
    import torch.nn.functional as F

    b = 32
    table: dict[str, tuple[Op, Callable[[], list[Any]]]] = {}
    for n, c, s in ((b, 64, 32), (b, 128, 16), (b, 256, 8), (b, 512, 4), (8, 512, 2), (8, 64, 16)):
        table[f"conv 3x3, {n}x{c}x{s}x{s}"] = conv(), tensors((n, c, s, s), (c, c, 3, 3))
    for c, s in ((64, 32), (128, 16), (256, 8)):
        x = (b, c, s, s)
        table[f"conv 3x3 stride 2, {b}x{c}x{s}x{s}"] = conv(2), tensors(x, (2 * c, c, 3, 3))
        table[f"conv 1x1 stride 2, {b}x{c}x{s}x{s}"] = conv(2, 0), tensors(x, (2 * c, c, 1, 1))
    table["conv 3x3, 32x3x32x32"] = conv(), tensors((b, 3, 32, 32), (64, 3, 3, 3))
    table["conv 7x7 stride 2, 8x3x64x64"] = conv(2, 3), tensors((8, 3, 64, 64), (64, 3, 7, 7))
    table["conv 3x3, 64x1x8x8 (demo)"] = conv(), tensors((64, 1, 8, 8), (32, 1, 3, 3))
    table["conv 3x3, 64x32x8x8 (demo)"] = conv(), tensors((64, 32, 8, 8), (64, 32, 3, 3))
    table["conv 1x1, 16x64x28x28"] = conv(1, 0), tensors((16, 64, 28, 28), (128, 64, 1, 1))
    table["depthwise 3x3, 16x64x28x28"] = conv(1, 1, 64), tensors((16, 64, 28, 28), (64, 1, 3, 3))
    table["grouped 3x3 (4), 16x64x28x28"] = (
        conv(1, 1, 4),
        tensors((16, 64, 28, 28), (64, 16, 3, 3)),
    )
    for c, s in ((64, 32), (128, 16), (512, 4)):
        table[f"batch_norm, {b}x{c}x{s}x{s}"] = (
            lambda x, w, v: F.batch_norm(x, None, None, w, v, True),
            tensors((b, c, s, s), (c,), (c,)),
        )
    table["relu, 32x64x32x32"] = F.relu, tensors((b, 64, 32, 32))
    table["add, 32x64x32x32"] = torch.add, tensors((b, 64, 32, 32), (b, 64, 32, 32))
    table["mean of a plane, 32x512x4x4"] = lambda x: x.mean((2, 3)), tensors((b, 512, 4, 4))
    table["max_pool 3x3 stride 2, 32x64x32x32"] = (
        lambda x: F.max_pool2d(x, 3, 2, 1),
        tensors((b, 64, 32, 32)),
    )
    table["max_pool 2x2, 64x64x8x8 (demo)"] = lambda x: F.max_pool2d(x, 2), tensors((64, 64, 8, 8))
    table["avg_pool 2x2, 32x64x32x32"] = lambda x: F.avg_pool2d(x, 2), tensors((b, 64, 32, 32))
    table["linear, 1024x384 to 1536"] = F.linear, tensors((1024, 384), (1536, 384), (1536,))
    table["linear, 1024x384 to 512"] = F.linear, tensors((1024, 384), (512, 384))
    table["linear, 64x1024 to 128 (demo)"] = F.linear, tensors((64, 1024), (128, 1024), (128,))
    table["layer_norm, 1024x384"] = (
        lambda x, w, v: F.layer_norm(x, (384,), w, v),
        tensors((1024, 384), (384,), (384,)),
    )
    table["gelu, 1024x1536"] = F.gelu, tensors((1024, 1536))
    table["softmax, 48x128x128"] = lambda x: x.softmax(-1), tensors((48, 128, 128))
    table["attention, causal, 8x6x128x64"] = (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        tensors(*[(8, 6, 128, 64)] * 3),
    )
    table["cross_entropy, 1024x512"] = (
        lambda x: F.cross_entropy(x, torch.arange(1024, device=x.device) % 512),
        tensors((1024, 512)),
    )
    table["embedding, 1024 of 512x384"] = (
        lambda w, i: F.embedding(i, w),
        ids(512, (8, 128), 384),
    )
    table["embedding, 1024 of 30000x384"] = (
        lambda w, i: F.embedding(i, w),
        ids(30000, (8, 128), 384),
    )
    table["index_add, 4096 of 1024x64"] = (
        lambda w, i: w.new_zeros(1024, 64).index_add(0, i, w[:1].expand(4096, 64)),
        ids(1024, (4096,), 64),
    )
    table["sort, 64x4096"] = lambda x: x.sort(-1).values, tensors((64, 4096))
    table["topk 50, 64x4096"] = lambda x: x.topk(50).values, tensors((64, 4096))
    table["cumsum, 64x4096"] = lambda x: x.cumsum(-1), tensors((64, 4096))
    table["lstm cell, 32x256"] = (
        lambda x, h, c, w, u: torch.stack(torch.lstm_cell(x, (h, c), w, u)),
        tensors((32, 256), (32, 256), (32, 256), (1024, 256), (1024, 256)),
    )
    return table


class Side:
    """One op on one device."""

    def __init__(self, op: Op, host: list[Any], device: str) -> None:
        import torch

        self.device = device
        self.op = op
        self.args = [t.to(device) if isinstance(t, torch.Tensor) else t for t in host]
        self.leaves = [t.requires_grad_() for t in self.args if t.is_floating_point()]
        self.weight = torch.randn_like(op(*self.args).detach())
        self.wait()

    def wait(self) -> None:
        """Until the device is idle."""
        if self.device == "xla":
            import torch_pjrt

            torch_pjrt.sync(wait=True)

    def forward(self) -> None:
        """A call without gradients."""
        import torch

        with torch.no_grad():
            self.kept = self.op(*self.args)
        self.wait()

    def backward(self) -> None:
        """A call and the gradients of its operands."""
        import torch

        out = self.op(*self.args)
        self.kept = out, torch.autograd.grad(out, self.leaves, self.weight)
        self.wait()


def spent(call: Callable[[], None]) -> float:
    """Milliseconds of processor time of one call; calls are repeated to 20 ms."""
    count, start = 0, time.process_time()
    while True:
        call()
        count += 1
        took = time.process_time() - start
        if took > 0.02:
            return took / count * 1e3


def measure(name: str, rounds: int, gate: Gate) -> None:
    """Prints one row."""
    import torch

    op, make = cases()[name]
    torch.manual_seed(0)
    host = make()
    sides = [Side(op, host, d) for d in ("xla", "cpu")]
    row = f"| {name} "
    for what in ("forward", "backward"):
        least = [1e9, 1e9]
        for side in sides:
            getattr(side, what)()
            getattr(side, what)()
        for _ in range(rounds):
            for i, side in enumerate(sides):
                least[i] = min(least[i], spent(getattr(side, what)))
        ratio = least[0] / least[1]
        row += f"| {least[0]:.3f} | {least[1]:.3f} | {ratio:.2f} "
        case = f"{name}, {what}"
        gate.most(case, ratio, MISSED.get(case, BUDGET))
    print(row + "|", flush=True)


def main() -> int:
    """Command line: see the top of the file."""
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--only", default="", help="names that hold one of these words")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--check", action="store_true", help="exit with 1 where a row is over budget")
    args = ap.parse_args()
    os.environ["PJRT_NPROC"] = str(args.threads)
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    import torch

    import torch_pjrt

    torch.set_num_threads(args.threads)
    torch_pjrt.sync()
    columns = "ours, ms | eager, ms | ratio"
    print(f"| op | {columns} | with gradients: {columns} |")
    print("|---" * 7 + "|")
    words = args.only.split(",")
    gate = Gate(args.check)
    for name in cases():
        if any(w in name for w in words):
            measure(name, args.rounds, gate)
    return gate.verdict()


if __name__ == "__main__":
    sys.exit(main())
