"""DistributedDataParallel in several processes: a small classifier on handwritten digits.

    torchrun --nproc_per_node=2 examples/ddp.py

Each rank trains on its part of every batch; the gradients' all-reduce is an instruction of the
program that the whole step is, so a step cuts nothing. `--checkpoint FILE` saves after each epoch
and continues from there.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_pjrt


def data(rank: int, world: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits of this rank, f32[n,64], and their labels, s64[n]."""
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:1792]
    return x[order][rank::world].to("xla"), y[order][rank::world].to("xla")


def main() -> None:
    """Trains for some epochs and prints losses, graph cuts and compiles."""
    parse = argparse.ArgumentParser()
    parse.add_argument("--epochs", type=int, default=5)
    parse.add_argument("--checkpoint", type=Path)
    args = parse.parse_args()

    dist.init_process_group("xla")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to("xla")
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    start = 0
    if args.checkpoint and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location="xla")
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["epoch"]

    x, y = data(rank, world)
    batch = 128 // world
    for epoch in range(start, args.epochs):
        for i in range(0, len(x), batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[i : i + batch]), y[i : i + batch])
            loss.backward()
            optimizer.step()
            torch_pjrt.sync()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {mean.item():.4f}")
            if args.checkpoint:
                states = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(states | {"epoch": epoch + 1}, args.checkpoint)
    if rank == 0:
        cuts = torch_pjrt.metrics.counters().get("GraphCut", 0)
        print(f"{torch_pjrt.metrics.compiles()} programs compiled, {cuts} graph cuts")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
