"""Runs a program in several processes that form a process group; for test_distributed.py."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PRELUDE = """
import os, sys, datetime
import torch, torch_pjrt
import torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def cuts():
    return torch_pjrt.metrics.counters().get("GraphCut", 0)
def start(backend="xla", seconds=60):
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=seconds))
"""


@dataclass
class Rank:
    """What one process did."""

    returncode: int
    out: str
    err: str


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def run_ranks(code: str, folder: Path, world: int = 2, timeout: float = 240, **env) -> list[Rank]:
    """Runs PRELUDE and `code` as torchrun would, one process a rank; kills all after `timeout` s."""
    script = folder / "program.py"
    script.write_text(PRELUDE + code)
    given = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | env
    given |= dict(
        WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
        OMP_NUM_THREADS="1", TORCH_PJRT_LOG="0",
    )
    files = [(open(folder / f"out{r}", "w+"), open(folder / f"err{r}", "w+")) for r in range(world)]
    started = [
        subprocess.Popen(
            [sys.executable, str(script)], stdout=out, stderr=err, text=True,
            env=given | {"RANK": str(r), "LOCAL_RANK": str(r)},
        )
        for r, (out, err) in enumerate(files)
    ]
    end = time.monotonic() + timeout
    try:
        for p in started:
            p.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    for p in started:
        p.kill()
    done = []
    for p, (out, err) in zip(started, files, strict=True):
        p.wait()
        out.seek(0), err.seek(0)
        done.append(Rank(p.returncode, out.read(), err.read()))
        out.close(), err.close()
    return done


def all_fine(ranks: list[Rank]) -> list[str]:
    """The ranks' outputs; fails where one did not end well."""
    for i, r in enumerate(ranks):
        assert r.returncode == 0, f"rank {i} ended with {r.returncode}:\n{r.out}\n{r.err[-4000:]}"
    return [r.out for r in ranks]
