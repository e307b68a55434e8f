"""Programs of frameworks, each run on the device through compat/torch_xla and on the CPU."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REPORTS = ROOT / "build" / "frameworks"
RUN = """
import json, runpy, sys
path, device, folder = sys.argv[1:]
if device == "xla":
    import torch_pjrt, torch_xla
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
run = runpy.run_path(path)["run"]
found = {"results": run(device, folder)}

def most_cut():
    # the three lines that read most values, and how often
    lines = {}
    for c in torch_pjrt.explain().cuts:
        at = f"{c.place.file.rpartition('/')[2]}:{c.place.line} ({c.kind})"
        lines[at] = lines.get(at, 0) + c.cuts
    return sorted(((n, at) for at, n in lines.items() if n), reverse=True)[:3]

if device == "xla":
    torch_pjrt.sync(wait=True)
    counters = torch_pjrt.metrics.counters()
    found |= {
        "programs": torch_pjrt.metrics.compiles(),
        "launches": torch_pjrt.metrics.timers().get("Execute", (0, 0))[0],
        "cuts": counters.get("GraphCut", 0),
        "cut most by": most_cut(),
        "on the CPU": sorted(n for n in counters if n.startswith(("aten::", "hostop::"))),
    } | found["results"].pop("counts", {})  # of a program that runs in other processes
print("FOUND" + json.dumps(found))
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> str:
    """A folder that says torch_xla is installed: some frameworks ask for the distribution."""
    folder = tmp_path_factory.mktemp("installed")
    info = folder / "torch_xla-2.13.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch_xla\nVersion: 2.13.0\n"
        "Summary: The names of torch_xla, on torch_pjrt\n"
    )
    return str(folder)


@pytest.fixture
def end_to_end(installed, tmp_path) -> Callable[[str], dict[str, Any]]:
    """Runs programs/NAME.py on both; what it found on the device and on the CPU."""

    def once(name: str, device: str) -> dict[str, Any]:
        folder = tmp_path / device
        folder.mkdir()
        path = [str(ROOT / "compat" / "torch_xla"), installed] if device == "xla" else []
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(HERE / "programs" / f"{name}.py"), device, str(folder)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1"},
        )
        lines = [x for x in done.stdout.splitlines() if x.startswith("FOUND")]
        assert done.returncode == 0 and lines, done.stderr[-4000:]
        found: dict[str, Any] = json.loads(lines[-1].removeprefix("FOUND"))
        return found

    def run(name: str) -> dict[str, Any]:
        on_device, on_cpu = once(name, "xla"), once(name, "cpu")
        REPORTS.mkdir(parents=True, exist_ok=True)
        report = {k: v for k, v in on_device.items() if k != "results"}
        (REPORTS / f"{name}.json").write_text(json.dumps(report))
        print(f"{name}: {report}")
        return {"xla": on_device["results"], "cpu": on_cpu["results"], **report}

    return run
