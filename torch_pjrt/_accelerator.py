"""`torch.accelerator` answers xla, where the program asks for that.

PyTorch's list of accelerators is fixed in C++ and lacks XLA. Its Python side asks a few functions
of `torch._C`: these are replaced while `as_accelerator()` is on, and put back behind it.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from . import _C, _device_module

__all__ = ["as_accelerator", "is_on"]

# Where accelerate and transformers look for a device that they do not know.
VARIABLE = "ACCELERATE_TORCH_DEVICE"
_ENVIRON = "environ"
_lock = threading.RLock()
_before: dict[tuple[Any, str], Any] = {}  # (where, name) -> what was there; empty while off


def is_on() -> bool:
    """Whether `torch.accelerator` answers xla."""
    return bool(_before)


def as_accelerator(on: bool = True) -> None:
    """Makes xla what `torch.accelerator` answers; `as_accelerator(False)` puts all back.

    For programs and frameworks that pick a device themselves: `torch.accelerator.*`,
    `DataLoader(pin_memory=True)` and `Tensor.pin_memory()` (host memory is not pinned for this
    device: they do nothing),
    `torch.random.fork_rng`, transformers' Trainer, accelerate's Accelerator, Lightning's
    `accelerator="auto"`. Call it before these are made. It is for the whole process.
    """
    with _lock:
        if on and not _before:
            _switch_on()
        elif not on:
            _put_back()


def _switch_on() -> None:
    import torch.utils.checkpoint
    import torch.utils.data

    for name, replacement in _functions().items():
        if hasattr(torch._C, name):
            _replace(torch._C, name, replacement)
    pin = torch.utils.data._utils.pin_memory
    _replace(pin, "pin_memory", _without_pinning(pin.pin_memory))
    _replace(torch.Tensor, "pin_memory", _unpinned(torch.Tensor.pin_memory))
    # Decided once by PyTorch, by what torch.accelerator says.
    _replace(torch.utils.checkpoint.DefaultDeviceType, "_default_device_type", None)
    torch.accelerator.get_device_capability.cache_clear()
    if VARIABLE not in os.environ:
        _before[_ENVIRON, VARIABLE] = None
        os.environ[VARIABLE] = "xla"


def _replace(where: Any, name: str, value: Any) -> None:
    _before[where, name] = getattr(where, name)
    setattr(where, name, value)


def _put_back() -> None:
    for (where, name), value in _before.items():
        if where == _ENVIRON:
            os.environ.pop(name, None)
        else:
            setattr(where, name, value)
    _before.clear()
    torch.accelerator.get_device_capability.cache_clear()


def _without_pinning(before: Callable[..., Any]) -> Callable[..., Any]:
    def pin_memory(data: Any, device: str | None = None) -> Any:
        return data if device == "xla" else before(data, device)

    return pin_memory


def _unpinned(before: Callable[..., Any]) -> Callable[..., Any]:
    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        here = self.device.type == "cpu" and (device is None or torch.device(device).type == "xla")
        return self if here else before(self, device)

    return pin_memory


def _functions() -> dict[str, Callable[..., Any]]:
    """What stands in torch._C, by name."""
    return {
        "_accelerator_getAccelerator": lambda: torch.device("xla"),
        "_get_accelerator": lambda check=None: torch.device("xla"),
        "_accelerator_getDeviceIndex": _device_module.current_device,
        "_accelerator_setDeviceIndex": _device_module.set_device,
        "_accelerator_exchangeDevice": _C.exchange_device,
        "_accelerator_maybeExchangeDevice": _maybe_exchange,
        "_accelerator_getDeviceCapability": _capability,
        "_accelerator_synchronizeDevice": _device_module.synchronize,
        "_accelerator_getStream": _device_module.current_stream,
        "_accelerator_setStream": _device_module.set_stream,
        "_accelerator_isAllocatorInitialized": _C.client_exists,
        "_accelerator_emptyCache": _device_module.empty_cache,
        "_accelerator_emptyHostCache": _nothing,
        "_accelerator_getDeviceStats": _stats,
        "_accelerator_resetAccumulatedStats": _nothing,
        "_accelerator_resetPeakStats": _device_module.reset_peak_memory_stats,
        "_accelerator_getMemoryInfo": _device_module.mem_get_info,
    }


def _nothing(*_: Any) -> None:
    """There is no such cache, and no such count, on this device."""


def _maybe_exchange(index: int) -> int:
    return _C.exchange_device(index) if index >= 0 else _C.current_device()


def _capability(index: int) -> dict[str, Any]:
    del index  # all alike
    names = (
        "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
        "complex64 complex128"
    )
    return {"supported_dtypes": {getattr(torch, name) for name in names.split()}}


def _stats(index: int) -> dict[str, Any]:
    """The two amounts that this device counts, under the names of PyTorch's allocators."""
    m = _device_module
    live = {"current": m.memory_allocated(index), "peak": m.max_memory_allocated(index)}
    held = {"current": m.memory_reserved(index), "peak": m.max_memory_reserved(index)}
    return {"allocated_bytes": {"all": live}, "reserved_bytes": {"all": held}}
