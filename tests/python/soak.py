"""Training by several processes while one of them is killed at random: for test_distributed.py, and
as a program: `python tests/python/soak.py --steps 2000 --world 4 --kills 5`.

Every rank trains a small model with DistributedDataParallel; rank 0 saves a checkpoint every few
steps. A rank is killed (SIGKILL) when it reaches a random step; the others have to end by
themselves, with a message. The next start continues from the checkpoint, and each step's loss has
to be what the step had before, and what one process has on the joined batch.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from processes import free_port
from torch import nn

PATIENCE = 60  # seconds: the group's timeout; a rank that dies is noticed at once


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def optimizer(m: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(step % 50)
    return torch.randn(16, 8, generator=g), torch.randint(0, 4, (16,), generator=g)


def reference(steps: int) -> list[float]:
    """Losses of one process on the joined batch, by PyTorch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine others wait for each other, op by op
    try:
        return _reference(steps)
    finally:
        torch.set_num_threads(threads)


def _reference(steps: int) -> list[float]:
    m, losses = model(), []
    o = optimizer(m)
    for step in range(steps):
        x, y = batch(step)
        o.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        o.step()
        losses.append(loss.item())
    return losses


def rank_main(folder: Path, steps: int, every: int) -> None:
    """One rank: continues from the checkpoint, writes `step loss` lines into losses<rank>."""
    import datetime

    import torch.distributed as dist

    import torch_pjrt

    dist.init_process_group("xla", timeout=datetime.timedelta(seconds=PATIENCE))
    rank, world = dist.get_rank(), dist.get_world_size()
    net = model().to("xla")
    ddp = nn.parallel.DistributedDataParallel(net)
    o, start = optimizer(ddp), 0
    saved = folder / "checkpoint.pt"
    if saved.exists():
        state = torch.load(saved, map_location="xla")
        net.load_state_dict(state["model"])
        o.load_state_dict(state["optimizer"])
        start = state["step"]
    with open(folder / f"losses{rank}", "a", buffering=1) as out:
        for step in range(start, steps):
            x, y = (t[rank::world].to("xla") for t in batch(step))
            o.zero_grad()
            loss = F.cross_entropy(ddp(x), y)
            loss.backward()
            o.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            torch_pjrt.sync()
            out.write(f"{step} {mean.item()!r}\n")
            if rank == 0 and (step + 1) % every == 0:
                states = {"model": net.state_dict(), "optimizer": o.state_dict()}
                torch.save(states | {"step": step + 1}, folder / "next.pt")
                os.replace(folder / "next.pt", saved)
    dist.barrier()
    dist.destroy_process_group()


def start_ranks(folder: Path, world: int, steps: int, every: int) -> list[subprocess.Popen]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env |= {"WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    env |= {"TORCH_PJRT_CACHE": str(folder / "programs")}
    command = [sys.executable, __file__, "--rank-in", str(folder)]
    command += ["--steps", str(steps), "--every", str(every)]
    return [
        subprocess.Popen(
            command,
            env=env | {"RANK": str(r), "LOCAL_RANK": str(r)},
            stderr=open(folder / f"err{r}", "w"),
        )
        for r in range(world)
    ]


def lines(folder: Path, rank: int) -> list[tuple[int, float]]:
    path = folder / f"losses{rank}"
    rows = path.read_text().splitlines() if path.exists() else []
    return [(int(a), float(b)) for a, b in (r.split() for r in rows if len(r.split()) == 2)]


def kill_at(
    ranks: list[subprocess.Popen], folder: Path, victim: int, step: int, before: int
) -> None:
    """Kills a rank once it has written that step, behind the `before` lines of earlier starts."""
    end = time.monotonic() + 600
    while all(done < step for done, _ in lines(folder, victim)[before:][-1:]):
        if time.monotonic() > end or ranks[victim].poll() is not None:
            raise AssertionError(
                f"rank {victim} did not reach step {step}: {errors(folder, victim)}"
            )
        time.sleep(0.01)
    ranks[victim].kill()


def errors(folder: Path, rank: int) -> str:
    return (folder / f"err{rank}").read_text()[-3000:]


def end(ranks: list[subprocess.Popen], within: float) -> list[int | None]:
    """Return codes; None of those that still ran after so many seconds (and were killed)."""
    limit, codes = time.monotonic() + within, []
    for p in ranks:
        try:
            codes.append(p.wait(max(0.1, limit - time.monotonic())))
        except subprocess.TimeoutExpired:
            codes.append(None)
    for p in ranks:
        p.kill()
        p.wait()
    return codes


def check_survivors(folder: Path, codes: list[int | None], victim: int) -> None:
    for rank, code in enumerate(codes):
        if rank == victim:
            continue
        text = errors(folder, rank)
        assert code is not None, f"rank {rank} hangs after rank {victim} was killed:\n{text}"
        assert code != 0, f"rank {rank} ended as if nothing had happened"
        assert "another rank raised, died" in text and f"rank {rank} of" in text, text
        assert "soak.py" in text, text


def check_losses(folder: Path, world: int, steps: int, want: list[float]) -> None:
    """Each step, however often it ran, had the reference's loss, on all ranks.

    A start's first step is not bit for bit what a later step is: DistributedDataParallel orders its
    buckets anew behind it, and gloo adds up in an order that depends on the place in the bucket. On
    CPU tensors too.
    """
    seen: dict[int, list[float]] = {}
    for rank in range(world):
        for step, loss in lines(folder, rank):
            seen.setdefault(step, []).append(loss)
    assert sorted(seen) == list(range(steps))
    for step, losses in seen.items():
        assert max(losses) - min(losses) < 1e-6, f"step {step} had the losses {losses}"
        assert abs(losses[0] - want[step]) < 1e-5, step


def soak(folder: Path, world: int, steps: int, kills: int, every: int, seed: int = 0) -> dict:
    """Runs it all; what it took."""
    rng, began = random.Random(seed), time.monotonic()
    done, slowest = 0, 0.0
    for kill in range(kills + 1):
        written = [len(lines(folder, r)) for r in range(world)]
        ranks = start_ranks(folder, world, steps, every)
        if kill == kills:
            break
        span = (steps - done) // (kills - kill + 1)
        at, victim = done + rng.randint(min(5, span), max(span, 5)), rng.randrange(world)
        kill_at(ranks, folder, victim, at, written[victim])
        killed = time.monotonic()
        check_survivors(folder, end(ranks, PATIENCE + 20), victim)
        slowest = max(slowest, time.monotonic() - killed)
        done = max(step for step, _ in lines(folder, victim)) // every * every
    codes = end(ranks, 600)
    assert codes == [0] * world, [errors(folder, r) for r in range(world)]
    check_losses(folder, world, steps, reference(steps))
    return {
        "seconds": round(time.monotonic() - began, 1),
        "kills": kills,
        "slowest_end": round(slowest, 2),
    }


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("--steps", type=int, default=2000)
    parse.add_argument("--every", type=int, default=50)
    parse.add_argument("--world", type=int, default=4)
    parse.add_argument("--kills", type=int, default=5)
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument("--rank-in", type=Path)
    a = parse.parse_args()
    if a.rank_in:
        rank_main(a.rank_in, a.steps, a.every)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(soak(Path(folder), a.world, a.steps, a.kills, a.every, a.seed)))


if __name__ == "__main__":
    main()
