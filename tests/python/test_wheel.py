"""The wheel in an empty environment, outside the source tree, with each torch that it serves; the
sdist. `make wheel sdist` makes them, which `make nightly` does first."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
HOUR = 3600
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(HOUR)]

# A training loop on the device and on the CPU, and where everything came from.
TRAIN = """
import copy, json, torch, torch_pjrt
from torch_pjrt import plugins

def train(model, x, y, sync):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        sync()
        losses.append(loss.detach())
    return losses, torch_pjrt.metrics.compiles()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
eager, _ = train(copy.deepcopy(model), x, y, lambda: None)
model, x, y = model.to("xla"), x.to("xla"), y.to("xla")
torch_pjrt.sync(wait=True)
torch_pjrt.metrics.clear()
ours, compiles = train(model, x, y, torch_pjrt.sync)
torch.testing.assert_close([loss.cpu() for loss in ours], eager)
print(json.dumps({
    "falls": bool(ours[-1] < ours[0]),
    "compiles": compiles,
    "torch": torch.__version__.partition("+")[0],
    "extension": torch_pjrt._C.__file__,
    "plugin": plugins.find_cpu().source,
}))
"""


def newest(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern), key=lambda p: p.stat().st_mtime)
    assert found, f"dist/ has no {pattern}: run `make wheel sdist`"
    return found[-1]


@pytest.fixture(scope="module")
def wheel() -> Path:
    return newest(f"torch_pjrt-*-cp{sys.version_info[0]}{sys.version_info[1]}-*.whl")


def releases() -> list[str]:
    """torch's releases that `make wheel` builds for."""
    line = re.search(r"^TORCHES \?= (.*)$", (ROOT / "Makefile").read_text(), re.M)
    return line[1].split()


def test_the_newest_release_is_the_one_that_requirements_name():
    pin = (ROOT / "requirements/newest-torch.txt").read_text().splitlines()[-1]
    assert pin == f"torch=={releases()[-1]}"


class Environment:
    """An empty virtual environment; its Python runs outside of the source tree."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        self.folder, self.python = folder, folder / "venv/bin/python"

    def run(self, *args: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TORCH_"))}
        done = subprocess.run(
            [self.python, *args], cwd=self.folder, env=clean, capture_output=True, text=True,
            timeout=HOUR, check=False,
        )  # fmt: skip
        assert not ok or done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done

    def install(self, *what: str) -> None:
        self.run("-m", "pip", "install", "--quiet", *what)

    def packages(self) -> Path:
        return next((self.folder / "venv/lib").glob("python3*/site-packages"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Iterator[Environment]:
    made = Environment(tmp_path_factory.mktemp("wheel"))
    yield made
    shutil.rmtree(made.folder)  # gigabytes, which pytest would keep for three runs


@pytest.mark.parametrize("release", releases())
def test_one_wheel_trains_on_each_torch_with_the_plugin_that_it_brings(release, wheel, environment):
    environment.install(str(wheel), f"torch=={release}")
    done = environment.run("-c", TRAIN)
    told = json.loads(done.stdout)
    stem = f"_C_{release.replace('.', '_')}"
    assert Path(told.pop("extension")).is_relative_to(environment.folder)
    assert told == {
        "falls": True,
        "compiles": 1,
        "torch": release,
        "plugin": "wheel fastatomstruct-xla-cpu",
    }
    assert stem in environment.run("-c", "import torch_pjrt; print(torch_pjrt._C.__file__)").stdout


def test_a_torch_that_the_wheel_does_not_serve_is_refused_with_what_to_install(wheel, tmp_path):
    there = Environment(tmp_path)
    there.install("--no-deps", str(wheel))
    fake = there.packages() / "torch"
    fake.mkdir()
    (fake / "__init__.py").write_text('__version__ = "2.12.0+cpu"\n')
    done = there.run("-c", "import torch_pjrt", ok=False)
    *_, last = done.stderr.splitlines()
    known = releases()
    assert last == (
        f"ImportError: torch_pjrt was built for torch {' and '.join(known)} but torch 2.12.0+cpu "
        f"is installed. Run `pip install torch=={known[-1]}`, or install a torch_pjrt that is "
        "built for torch 2.12.0 (from source: make clean && make)."
    )


def test_without_torch_the_wheel_says_what_to_install(wheel, tmp_path):
    there = Environment(tmp_path)
    there.install("--no-deps", str(wheel))
    done = there.run("-c", "import torch_pjrt", ok=False)
    known = releases()
    assert f"torch_pjrt needs PyTorch: pip install torch=={known[-1]}" in done.stderr


def test_the_wheel_holds_one_extension_for_each_torch_and_nothing_of_torch(wheel):
    command = [sys.executable, str(ROOT / "tools/check_wheel.py"), str(DIST), *releases()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


# ---- the sdist ------------------------------------------------------------------------------


def test_the_sdist_has_what_a_build_reads_and_no_build(tmp_path):
    with tarfile.open(newest("torch_pjrt-*.tar.gz")) as t:
        names = {n.partition("/")[2] for n in t.getnames()}
    listed = re.findall(r"src/[\w/]+\.cpp", (ROOT / "cmake/sources.cmake").read_text())
    python = {f"torch_pjrt/{p.name}" for p in (ROOT / "torch_pjrt").glob("*.py*")}
    python -= {"torch_pjrt/_build_info.py"}
    assert {*listed, *python, "tools/gen_meta.py", "CMakeLists.txt", "LICENSE"} - names == set()
    assert [n for n in names if n.endswith((".so", "_build_info.py", ".o"))] == []


def test_the_sdist_builds_a_wheel_for_the_torch_of_its_environment(tmp_path):
    run = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    run += ["--wheel-dir", str(tmp_path), str(newest("torch_pjrt-*.tar.gz"))]
    done = subprocess.run(run, capture_output=True, text=True, timeout=HOUR, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    made = next(tmp_path.glob("*.whl"))
    release = torch.__version__.partition("+")[0]
    with zipfile.ZipFile(made) as z:
        metadata = z.read(next(n for n in z.namelist() if n.endswith("METADATA"))).decode()
        stem = f"torch_pjrt/_C_{release.replace('.', '_')}."
        assert [n for n in z.namelist() if n.startswith(stem)]
    assert f"Requires-Dist: torch=={release}\n" in metadata
