"""Runs a program in several processes that form a process group; for test_distributed.py."""

import contextlib
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


def run_ranks(
    code: str,
    folder: Path,
    world: int = 2,
    timeout: float = 240,
    prefixes: list[list[str]] | None = None,
    address: str = "127.0.0.1",
    **env: str,
) -> list[Rank]:
    """Runs PRELUDE and `code` as torchrun would, a process a rank; kills all after `timeout` s.

    `prefixes`: what stands before each rank's command. `address`: of rank 0.
    """
    script = folder / "program.py"
    script.write_text(PRELUDE + code)
    given = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | env
    given |= {
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }
    with contextlib.ExitStack() as stack:
        files = [
            [stack.enter_context(open(folder / f"{name}{r}", "w+")) for name in ("out", "err")]
            for r in range(world)
        ]
        started = [
            subprocess.Popen(
                [*(prefixes[r] if prefixes else []), sys.executable, str(script)],
                stdout=out,
                stderr=err,
                text=True,
                env=given | {"RANK": str(r), "LOCAL_RANK": str(r)},
            )
            for r, (out, err) in enumerate(files)
        ]
        end_all(started, timeout)
        return [
            Rank(p.returncode, *(f.seek(0) or f.read() for f in pair))
            for p, pair in zip(started, files, strict=True)
        ]


def end_all(started: list[subprocess.Popen], timeout: float) -> None:
    """Waits for all, and kills those that still run after `timeout` s."""
    end = time.monotonic() + timeout
    with contextlib.suppress(subprocess.TimeoutExpired):
        for p in started:
            p.wait(max(0.1, end - time.monotonic()))
    for p in started:
        p.kill()
        p.wait()


def all_fine(ranks: list[Rank]) -> list[str]:
    """The ranks' outputs; fails where one did not end well."""
    for i, r in enumerate(ranks):
        assert r.returncode == 0, f"rank {i} ended with {r.returncode}:\n{r.out}\n{r.err[-4000:]}"
    return [r.out for r in ranks]
