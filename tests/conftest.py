"""What the Python tests and the cases share: the device, counts of compiles, programs in their own
process, and what is left to `make nightly`."""

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
# Most tests are about programs; `make tiers` runs what computes with all tiers, as users have them.
os.environ.setdefault("TORCH_PJRT_TIERS", "small")

sys.path.insert(0, str(Path(__file__).parent / "python"))

from fake_plugin import fake, run_fake  # noqa: F401 - fixtures
from fork_server import ForkServer, read_at_start

import torch_pjrt

ROOT = Path(__file__).resolve().parents[1]
# Files that take more than half a minute of a processor, in this order; the first two in
# `make nightly`, where they build an sdist and train with frameworks.
LONGEST = (
    *("test_wheel", "test_frameworks"),
    *("test_ops", "test_models", "test_accelerator", "test_lowerings", "test_exit"),
)
TIMEOUT = 120  # seconds, of a process that a test starts
RUN_MODULE = """
import runpy, sys
sys.argv = {argv!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
torch.set_num_threads(1)  # tests compare small tensors


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="with what is marked nightly")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves what is marked nightly out; files that take longest come first, for balance."""
    if not config.getoption("--nightly"):
        left = [i for i in items if i.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left)
        items[:] = [i for i in items if not i.get_closest_marker("nightly")]
    items.sort(key=lambda i: LONGEST.index(n) if (n := i.path.stem) in LONGEST else len(LONGEST))


@pytest.fixture
def nightly(request: pytest.FixtureRequest) -> bool:
    """Whether there is time for all of it."""
    return request.config.getoption("--nightly")


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


@pytest.fixture(autouse=True)
def first_sync_compiles(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """For tests about programs: a graph that was never seen is compiled, also where the suite runs
    with TORCH_PJRT_TIERS=on."""
    marked = request.node.get_closest_marker("programs") is not None
    if not marked and "compiles" not in request.fixturenames:
        yield
        return
    monkeypatch.setenv("TORCH_PJRT_TIERS", "small")  # of the processes that it starts
    with torch_pjrt.tiers("small"):
        yield


@pytest.fixture(scope="session")
def fork_servers() -> Iterator[Callable[[str], ForkServer]]:
    """The server that has run an import statement: made at its first use, ended with the tests."""
    made: dict[str, ForkServer] = {}

    def server(imports: str) -> ForkServer:
        if imports not in made:
            made[imports] = ForkServer(imports)
        return made[imports]

    yield server
    for s in made.values():
        s.close()


@pytest.fixture(scope="session")
def run_python(fork_servers) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python code (or arguments) in a process of its own with more environment variables.

    Code and modules (`-m`) run in a forked child of a process that has run `imports` already,
    unless the test is about the start of a process: then own_start.
    """

    def run(
        *args: str, code: str = "", own_start: bool = False, imports: str = "import torch", **env
    ) -> subprocess.CompletedProcess[str]:
        own_start = own_start or read_at_start(env)
        env = os.environ | env
        if args[:1] == ("-m",) and not own_start:
            code = RUN_MODULE.format(module=args[1], argv=list(args[1:]))
        if code and not own_start:
            return fork_servers(imports).run(code, env, ROOT, TIMEOUT)
        command = [sys.executable, *(args or ("-c", code))]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, env=env, cwd=ROOT, check=False
        )

    return run
