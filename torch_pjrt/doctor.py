"""Versions, plugins found, whether the device answers, what is missing and how to get it."""

import glob
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from . import _C, _build_info, plugins

__all__ = ["report", "run"]

# Hardware that shows in the file system -> what PJRT_DEVICE would be called, what to install.
_HARDWARE = (
    ("/dev/nvidia[0-9]*", "CUDA", "pip install jax-cuda13-pjrt"),
    ("/dev/kfd", "ROCM", "pip install jax-rocm7-pjrt"),
    ("/dev/accel[0-9]*", "TPU", "pip install libtpu"),
)


def _versions() -> Iterator[str]:
    yield f"torch_pjrt  {_build_info.VERSION} (sources {_build_info.REVISION})"
    yield f"torch       {torch.__version__} (built for {', '.join(_build_info.BUILDS)})"
    yield f"python      {sys.version.split()[0]} on {platform.platform()}"
    if not _C.frames_direct():
        yield "            its frames are unknown: lines are asked of Python's API, which is slower"


def _found(found: list[plugins.Plugin], problems: list[str]) -> Iterator[str]:
    asked = os.environ.get("PJRT_DEVICE") or "CPU"
    for p in [*plugins.find_from_variable(), *found]:
        mark = "*" if p.name == asked else " "
        there = "" if not p.library or Path(p.library).exists() else "  (no such file)"
        yield f"{mark} {p.name:<8} {p.library or 'not installed'}{there}  [{p.source}]"
    yield from (f"! {line}" for line in problems)
    yield f"PJRT_DEVICE={os.environ.get('PJRT_DEVICE', '')} -> {asked}"


def _devices() -> tuple[bool, list[str]]:
    try:
        info = _C.client_info()
    except Exception as error:  # whatever the plugin says is what people need to read
        return False, [str(error)]
    lines = [f"platform {info['platform']}, version {info['platform_version']}"]
    listed = info["devices"]
    if isinstance(listed, list):
        lines += [f"xla:{i}  {d['kind']}  {d['text']}" for i, d in enumerate(listed)]
    return True, lines


def _missing(found: list[plugins.Plugin]) -> Iterator[str]:
    for p in found:
        if not p.library:
            yield f"{p.name}: {p.how_to_install}"
    there = {p.name for p in found}
    for pattern, name, advice in _HARDWARE:
        if glob.glob(pattern) and name not in there:
            yield f"{name} hardware is here without a plugin: {advice}"


def _advise(found: list[plugins.Plugin], works: bool) -> Iterator[str]:
    asked = os.environ.get("PJRT_DEVICE") or "CPU"
    chosen = next((p for p in found if p.name == asked), None)
    yield from _missing(found)
    if not works and chosen and chosen.library and chosen.how_to_install:
        yield f"{asked}: {chosen.how_to_install}"
    if not works and asked != "CPU":
        yield "to go on with the CPU: unset PJRT_DEVICE"


def report() -> tuple[bool, str]:
    """(does the device answer, the text)."""
    problems: list[str] = []
    found = plugins.find(problems)
    if not _C.client_exists():
        plugins.register(found)
    works, devices = _devices()
    sections = {
        "versions": list(_versions()),
        "plugins": list(_found(found, problems)),
        "devices": devices,
        "missing": list(_advise(found, works)) or ["nothing"],
    }
    lines: list[str] = []
    for title, body in sections.items():
        lines += [title, *(f"  {line}" for text in body for line in text.splitlines())]
    return works, "\n".join(lines)


def run() -> int:
    """Prints the report; 0 where the device answers."""
    works, text = report()
    print(text)
    return 0 if works else 1
