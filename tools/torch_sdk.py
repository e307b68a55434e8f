"""Unpacks what a build needs of PyTorch's wheels: headers, the libraries to link with, op schemas.

usage: torch_sdk.py FOLDER VERSION...

Each version goes to FOLDER/VERSION/torch, for CMake's TP_TORCH_DIRS; one that is there already is
left alone. Its GPU libraries (gigabytes) stay in the wheel: nothing here is run. Headers and
libraries are the same for all Pythons, so the wheel of Python 3.11 serves them all.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LINKED = ("libc10.so", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so")
SCHEMAS = "torchgen/packaged/ATen/native/native_functions.yaml"


def wanted(name: str) -> bool:
    """Whether the build reads this file of the wheel."""
    folder, _, file = name.rpartition("/")
    return (
        name.startswith("torch/include/")
        or name in (SCHEMAS, "torch/version.py")
        or (folder == "torch/lib" and file in LINKED)
    )


def download(version: str, folder: str) -> Path:
    """The wheel, as pip finds it."""
    run = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    run += ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp"]
    subprocess.run([*run, f"torch=={version}"], check=True)  # noqa: S603
    return next(Path(folder).glob("*.whl"))


def unpack(version: str, folder: Path) -> None:
    """Makes `folder`, whole or not at all."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        parts = Path(work, "parts")
        with zipfile.ZipFile(download(version, work)) as wheel:
            names = [n for n in wheel.namelist() if wanted(n)]
            missing = {*LINKED, SCHEMAS} - {n.removeprefix("torch/lib/") for n in names}
            if missing:
                raise SystemExit(f"torch_sdk: the wheel of torch {version} lacks {missing}")
            wheel.extractall(parts, names)
        parts.rename(folder)


def main() -> None:
    """Command line: see the top."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("version", nargs="+")
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    for version in a.version:
        if not (a.folder / version).exists():
            unpack(version, a.folder / version)


if __name__ == "__main__":
    main()
