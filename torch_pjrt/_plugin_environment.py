"""What a plugin's programs depend on besides its file: variables that it reads, versions around it.

All of it is part of the compile key, so that no program made under other flags, by other libraries
or for another driver is loaded.
"""

import importlib.metadata
import re
from pathlib import Path
from typing import TypeVar

__all__ = ["facts", "variables"]

Row = TypeVar("Row")

_XLA = ("XLA_FLAGS", "TF_XLA_FLAGS")
_GPU = (*_XLA, "CUDA_*", "CUDNN_*", "CUBLAS_*", "CUBLASLT_*", "NVIDIA_TF32_OVERRIDE", "NCCL_*",
        "TF_*", "HIP_*", "ROCM_*", "MIOPEN_*", "HSA_*")  # fmt: skip
# By the beginning of the name that PJRT_DEVICE gives a plugin. "X_*": all that begin with X_.
_VARIABLES = {
    "CPU": ("XLA_FLAGS",),
    "TPU": (*_XLA, "LIBTPU_INIT_ARGS", "TPU_*", "MEGASCALE_*"),
    "CUDA": _GPU,
    "ROCM": _GPU,
    "NEURON": (*_XLA, "NEURON_*"),
}
# Versions of drivers: files of the system, one line of each.
_DRIVERS = {
    "CUDA": ("/proc/driver/nvidia/version",),
    "ROCM": ("/sys/module/amdgpu/version",),
    "NEURON": ("/sys/module/neuron/version",),
    "TPU": ("/sys/module/gasket/version",),
}
# Distributions whose libraries the plugin loads.
_LIBRARIES = {
    "CUDA": re.compile(r"nvidia[-_].*"),
    "ROCM": re.compile(r"rocm[-_].*|jax-rocm.*"),
    "NEURON": re.compile(r"(lib)?neuron.*"),
}


def _of(table: dict[str, Row], name: str) -> Row | None:
    return next((row for start, row in table.items() if name.startswith(start)), None)


def variables(name: str) -> tuple[str, ...]:
    """The variables that a plugin of this name is known to read; none: those of every plugin."""
    return _of(_VARIABLES, name) or ()


def facts(name: str) -> dict[str, str]:
    """Versions of the driver and of the libraries that a plugin of this name uses.

    Those that cannot be read are left out.
    """
    found: dict[str, str] = {}
    for path in _of(_DRIVERS, name) or ():
        try:
            found[path] = Path(path).read_text().partition("\n")[0].strip()
        except OSError:  # no such driver
            continue
    pattern = _of(_LIBRARIES, name)
    if pattern is None:
        return found
    for distribution in importlib.metadata.distributions():
        title = distribution.metadata["Name"] or ""
        if pattern.fullmatch(title.lower()):
            found[title] = distribution.version
    return found
