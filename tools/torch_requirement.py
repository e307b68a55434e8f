"""The wheel's requirements: the torch releases that it is built for, and no other.

A provider of scikit-build-core's dynamic metadata. The releases are those of the folders in
TORCH_PJRT_TORCHES (`make wheel`), else that of the build Python's torch (`pip install .`).
"""

import os
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PATCHES = range(4)  # no minor release of PyTorch ever had more


def requirement(releases: list[str]) -> str:
    """One requirement that admits exactly these releases, of any build (+cpu, +cu130)."""
    versions = sorted(tuple(map(int, r.split("."))) for r in releases)
    if len(versions) == 1:
        return f"torch=={releases[0]}"
    first, last = versions[0], versions[-1]
    lines = {v[:2] for v in versions}
    between = [(first[0], minor) for minor in range(first[1], last[1] + 1)]
    excluded = [f"!={major}.{minor}.*" for major, minor in between if (major, minor) not in lines]
    known = [(*line, patch) for line in between if line in lines for patch in PATCHES]
    excluded += [
        "!=" + ".".join(map(str, v)) for v in known if first < v < last and v not in versions
    ]
    bounds = [f">={'.'.join(map(str, first))}", f"<={'.'.join(map(str, last))}"]
    return "torch" + ",".join(bounds + excluded)


def releases() -> list[str]:
    """What is built for here; nothing where there is no torch, as when an sdist is made."""
    env = runpy.run_path(str(ROOT / "cmake/python_env.py"))
    folders = [Path(p) for p in os.environ.get("TORCH_PJRT_TORCHES", "").split(";") if p]
    if not folders and (found := env["package_dir"]("torch")):
        folders = [found]
    return [env["torch_version"](f, "__version__").partition("+")[0] for f in folders]


def dynamic_metadata(settings: Mapping[str, Any], _project: Mapping[str, Any]) -> dict[str, Any]:
    """The field `dependencies`: torch, and what the settings name beside it."""
    found = releases()
    return {"dependencies": [*([requirement(found)] if found else []), *settings["beside"]]}


def dynamic_wheel(_settings: Mapping[str, Any]) -> dict[str, bool]:
    """An sdist does not say them: they are those of the torch that a wheel is built with."""
    return {"dependencies": True}
