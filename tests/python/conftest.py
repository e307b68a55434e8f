"""What the Python tests share: the device, counts of compiles, programs in their own process."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

# Before the flags are read: tests count compiles, so they keep no programs across processes, and
# leave the user's own folder alone. tests/python/test_cache.py sets folders of its own.
os.environ["TORCH_PJRT_CACHE"] = "off"

from fake_plugin import fake, run_fake  # noqa: F401 - fixtures

import torch_pjrt

ROOT = Path(__file__).resolve().parents[2]
torch.set_num_threads(1)  # tests compare small tensors


@pytest.fixture
def device() -> torch.device:
    """The device under test."""
    return torch_pjrt.device()


@dataclass
class Seen:
    """What happened inside a `compiles()` block; filled when it ends."""

    count: int = -1
    cuts: int = -1
    fallbacks: tuple[str, ...] = ()


@contextmanager
def counting() -> Iterator[Seen]:
    """Counts programs compiled, graph cuts and fallbacks."""
    torch_pjrt.sync(wait=True)
    before, first = torch_pjrt.metrics.counters(), torch_pjrt.metrics.compiles()
    seen = Seen()
    yield seen
    torch_pjrt.sync(wait=True)
    after = torch_pjrt.metrics.counters()
    grown = {k: v - before.get(k, 0) for k, v in after.items() if v > before.get(k, 0)}
    seen.count = torch_pjrt.metrics.compiles() - first
    seen.cuts = grown.get("GraphCut", 0)
    seen.fallbacks = tuple(k for k in grown if k.startswith("aten::"))


@pytest.fixture
def compiles() -> Callable[[], object]:
    """`with compiles() as seen: ...` and then seen.count."""
    return counting


@pytest.fixture(scope="session")
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python code (or arguments) in a new process with more environment variables."""

    def run(*args: str, code: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *(("-c", code) if code else args)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | env,
            cwd=ROOT,
            check=False,
        )

    return run
