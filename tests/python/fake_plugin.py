"""The fake plugin (tests/fakeplugin) for Python tests: built, loaded by path, told when to fail."""

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILDS = ("dev", "release")


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


def fake_env(fake: str) -> dict[str, str]:
    """The environment of a process that uses the fake plugin."""
    return {"TORCH_PJRT_PLUGIN": f"FAKE:{fake}", "PJRT_DEVICE": "FAKE", "FAKE": fake}


# `ticks` grows while other threads get Python's lock.
TICKING = """
import threading, time
ticks = 0
def tick():
    global ticks
    while True:
        time.sleep(0.005)
        ticks += 1
threading.Thread(target=tick, daemon=True).start()
"""

PRELUDE = """
import ctypes, os, torch, torch_pjrt
plugin = ctypes.CDLL(os.environ["FAKE"])
def script(text):
    assert plugin.fake_plugin_script(text.encode()) == 1
def attempt(f):
    try:
        return f()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
states = lambda *ts: [torch_pjrt.state(t) for t in ts]
a = torch.arange(6.0).to("xla") ; b = torch.ones(6).to("xla")
torch_pjrt.sync(wait=True)
"""


@pytest.fixture
def run_fake(run_python, fake):
    """Runs code after PRELUDE on the fake plugin; gives what it printed."""

    def run(code: str, **env: str) -> str:
        env = fake_env(fake) | env
        done = run_python(code=PRELUDE + code, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Exception raised from" not in done.stdout
        return done.stdout

    return run
