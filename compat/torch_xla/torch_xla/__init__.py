"""The names of torch_xla, on torch_pjrt: each a thin call into it."""

import logging
from pathlib import Path as _Path

from ._beside import check as _check

_check(_Path(__file__).parent)

import torch_pjrt as _torch_pjrt  # noqa: E402, F401 - the device exists from here on

from . import _XLAC  # noqa: E402
from .torch_xla import (  # noqa: E402
    compile,
    device,
    device_count,
    devices,
    launch,
    manual_seed,
    real_devices,
    set_custom_compile_options,
    step,
    sync,
)
from .version import __version__  # noqa: E402

logger = logging.getLogger(__name__)

__all__ = [
    "_XLAC",
    "__version__",
    "compile",
    "device",
    "device_count",
    "devices",
    "launch",
    "logger",
    "manual_seed",
    "real_devices",
    "save_as_stablehlo",
    "save_torch_model_as_stablehlo",
    "set_custom_compile_options",
    "step",
    "sync",
]


_MODULES = (
    "amp", "backends", "core", "debug", "distributed", "experimental", "runtime", "stablehlo",
    "test", "utils",
)  # fmt: skip


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in ("save_as_stablehlo", "save_torch_model_as_stablehlo"):
        return getattr(import_module(".stablehlo", __name__), name)
    if name == "xm":
        return import_module(".core.xla_model", __name__)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'torch_xla' has no attribute '{name}'")
