"""torch_xla.runtime: one process, its devices and programs."""

import os
from typing import Any

import torch_pjrt

from . import _XLAC
from ._names import SHARDING, later


def device_type() -> str | None:
    """The plugin's kind: "CPU", "TPU", "CUDA"."""
    return os.environ.get("PJRT_DEVICE") or torch_pjrt.runtime.device_type()


def set_device_type(pjrt_device: str) -> None:
    """Chooses the plugin, before the first use of the device."""
    if torch_pjrt.runtime.is_running():
        have = torch_pjrt.runtime.device_type()
        if have.upper() != pjrt_device.upper():
            raise RuntimeError(
                f"torch_xla.runtime.set_device_type: the device runs on {have} already\n"
                f"  try: PJRT_DEVICE={pjrt_device} in the environment"
            )
    os.environ["PJRT_DEVICE"] = pjrt_device


def world_size() -> int:
    return 1


process_count = local_process_count = world_size


def global_ordinal() -> int:
    return 0


local_ordinal = process_index = host_index = global_ordinal


def addressable_device_count() -> int:
    return len(torch_pjrt.devices())


def global_device_count() -> int:
    return len(torch_pjrt.devices())


global_runtime_device_count = addressable_runtime_device_count = global_device_count
local_device_count = global_device_count


def runtime_device_attributes(device: str) -> dict[str, Any]:
    return global_runtime_device_attributes()[int(device.partition(":")[2] or 0)]


def global_runtime_device_attributes() -> list[dict[str, Any]]:
    return [dict(d) for d in torch_pjrt.runtime.devices()]


def is_bf16_supported() -> bool:
    return True


def get_master_ip() -> str:
    return "127.0.0.1"


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keeps compiled programs in that folder."""
    torch_pjrt.cache.use(path, read_only=readonly)


def get_num_cached_compilation_graph() -> int:
    return torch_pjrt.metrics.compiles()


def clear_computation_cache() -> None:
    _XLAC._C.clear_programs()


def is_spmd() -> bool:
    return False


use_spmd = later("runtime.use_spmd", SHARDING)
