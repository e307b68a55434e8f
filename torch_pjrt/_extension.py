"""Loads the build of `_C` that fits the torch that is installed, as `torch_pjrt._C`.

A wheel holds one build for each torch that it serves. A C++ extension of another torch fails with
an undefined symbol, or worse, works a little: so torch's version decides before a file is opened.
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import sysconfig
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

__all__ = ["builds", "check_alone", "choose", "load", "newest", "release"]


def release(version: str) -> str:
    """The part of a version that fixes the C++ interface: "2.13.0+cpu" -> "2.13.0"."""
    return version.partition("+")[0]


def builds() -> dict[str, str]:
    """Torch's release -> the name of the file, without suffix, that was built for it.

    Raises ImportError where nothing has been built.
    """
    try:
        from . import _build_info
    except ImportError:
        raise ImportError(
            "torch_pjrt is not built: torch_pjrt/_build_info.py is missing. "
            "In a source tree run `make`; else: pip install --force-reinstall torch-pjrt"
        ) from None
    return _build_info.BUILDS


def _in_order(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def newest() -> str:
    """The newest torch that there is a build for."""
    return max(builds(), key=_in_order)


def choose(found: str, there: Mapping[str, str]) -> str:
    """The file for the torch found. Raises ImportError that names what to install."""
    if name := there.get(release(found)):
        return name
    known = sorted(there, key=_in_order)
    raise ImportError(
        f"torch_pjrt was built for torch {' and '.join(known)} but torch {found} is installed. "
        f"Run `pip install torch=={known[-1]}`, or install a torch_pjrt that is built for torch "
        f"{release(found)} (from source: make clean && make)."
    )


def check_alone() -> None:
    """Raises ImportError where the real torch_xla is loaded; warns where it is installed.

    It makes the device `xla` too, for its own torch: the dispatcher takes one set of kernels.
    """
    for found in importlib.metadata.distributions(name="torch_xla"):
        if (found.metadata["Summary"] or "").endswith("on torch_pjrt"):  # compat/torch_xla
            continue
        what = f"torch_xla {found.version}"
        advice = "Run `pip uninstall torch_xla`; its names are in torch_pjrt's compat/torch_xla."
        if "_XLAC" in sys.modules:
            raise ImportError(
                f"{what} is loaded, and torch_pjrt provides the device xla too: one process has "
                f"one of them. {advice}"
            )
        warnings.warn(
            f"{what} is installed beside torch_pjrt: what imports it would make the device xla "
            f"twice. {advice}",
            RuntimeWarning,
            stacklevel=3,
        )


def load(torch_version: str) -> ModuleType:
    """The extension module for that torch. Raises ImportError where there is none."""
    name = f"{__package__}._C"
    if there := sys.modules.get(name):
        return there
    stem = choose(torch_version, builds())
    check_alone()
    file = Path(__file__).parent / f"{stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not file.exists():
        raise ImportError(
            f"torch_pjrt/{file.name} is missing: the build is not complete. "
            "In a source tree run `make`; else: pip install --force-reinstall torch-pjrt"
        )
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec  # noqa: S101 - a loader was given
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    vars(sys.modules[__package__])["_C"] = module
    return module
