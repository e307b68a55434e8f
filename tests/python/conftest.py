"""What the Python tests share: the device, counts of compiles, programs in their own process."""

import importlib.util
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

import torch_pjrt

ROOT = Path(__file__).resolve().parents[2]
BUILDS = ("dev", "release")
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


@pytest.fixture
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


def compile_fake(folder: Path) -> Path:
    """Builds the fake plugin: five small files."""
    wheel = importlib.util.find_spec("xla_plugins")
    include = Path(next(iter(wheel.submodule_search_locations))) / "xla_cpu_pjrt" / "include"
    library = folder / "libfakeplugin.so"
    sources = sorted(map(str, (ROOT / "tests" / "fakeplugin").glob("*.cpp")))
    options = ["-std=c++20", "-O0", "-shared", "-fPIC", f"-I{ROOT / 'src'}", f"-isystem{include}"]
    subprocess.run(["g++", *options, *sources, "-o", str(library), "-pthread"], check=True)
    return library


@pytest.fixture(scope="session")
def fake(tmp_path_factory) -> str:
    """Path of the fake plugin: named by TORCH_PJRT_FAKE_PLUGIN, built by CMake, or built here."""
    if named := os.environ.get("TORCH_PJRT_FAKE_PLUGIN"):
        return named
    for build in BUILDS:
        if (built := ROOT / "build" / build / "libfakeplugin.so").exists():
            return str(built)
    return str(compile_fake(tmp_path_factory.mktemp("fake")))
