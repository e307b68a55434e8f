"""torch_xla.runtime: processes, devices and programs."""

import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch_pjrt
from torch_pjrt import spmd

from . import _XLAC, _processes

R = TypeVar("R")
FN = TypeVar("FN", bound=Callable[..., Any])


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
    return _processes.world()


process_count = world_size


def local_process_count() -> int:
    return _processes.local_world()


def global_ordinal() -> int:
    return _processes.rank()


process_index = global_ordinal


def local_ordinal() -> int:
    return _processes.local_rank()


def host_index() -> int:
    """Which machine."""
    return _processes.rank() // max(_processes.local_world(), 1)


def addressable_device_count() -> int:
    """In SPMD mode one stands for all; so below."""
    return len(_XLAC._xla_get_devices())


local_device_count = addressable_device_count


def global_device_count() -> int:
    return addressable_device_count() * _processes.world()


def addressable_runtime_device_count() -> int:
    """The plugin's own."""
    return _XLAC._xla_num_runtime_devices()


def global_runtime_device_count() -> int:
    return addressable_runtime_device_count() * _processes.world()


def runtime_device_attributes(device: str) -> dict[str, Any]:
    return _XLAC._xla_get_device_attributes(device)


def global_runtime_device_attributes() -> list[dict[str, Any]]:
    return _XLAC._xla_get_all_device_attributes()


def is_bf16_supported() -> bool:
    return True


def get_master_ip() -> str:
    return os.environ.get("MASTER_ADDR", "127.0.0.1")


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keeps compiled programs in that folder; before the device is used."""
    if torch_pjrt.runtime.is_running():
        raise AssertionError(
            "Computation client already initialized: initialize_cache() comes before the first "
            "use of the device"
        )
    torch_pjrt.cache.use(path, read_only=readonly)


def get_num_cached_compilation_graph() -> int:
    return _XLAC._xla_get_num_cached_compilation_graph()


def clear_computation_cache() -> None:
    torch_pjrt._C.clear_programs()


def use_spmd(auto: bool = False) -> None:
    """Changes nothing here: a graph is SPMD where a tensor in it is marked."""
    os.environ["XLA_USE_SPMD"] = "1"
    if auto:
        os.environ["XLA_AUTO_SPMD"] = "1"
        _XLAC._xla_set_auto_sharding()
    spmd.use_spmd()


def is_spmd() -> bool:
    """Whether use_spmd() was called."""
    return os.environ.get("XLA_USE_SPMD") == "1"
