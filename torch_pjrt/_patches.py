"""Where PyTorch does not know the device `xla` by itself, put right once, at import.

`torch.accelerator` is left alone: its list of devices is fixed in C++ and lacks XLA, so
`torch.accelerator.is_available()` stays false. Use `torch.xla` or `torch_pjrt`.
"""

import atexit
import functools
from collections.abc import Callable
from typing import Any

import torch

from . import (
    _C,
    _device_mesh,
    _device_module,
    _dynamo,
    _frameworks,
    _higher_order,
    _load,
    _nested,
    _optim,
    _recurrent,
    _storage,
    distributed,
)

__all__ = ["install"]


def install() -> None:
    """Puts all of it in place; a second call changes nothing."""
    if getattr(torch, "xla", None) is _device_module:
        return
    torch._register_device_module("xla", _device_module)
    _seed_with_torch()
    _refuse_dlpack()
    _storage.install()
    _load.install()
    _optim.install()
    _dynamo.install()
    _higher_order.install()
    _recurrent.install()
    _frameworks.install()
    _nested.install()
    distributed.install()
    _device_mesh.install()
    _name_reads()
    atexit.register(_C.prepare_exit)


def _seed_with_torch() -> None:
    """`torch.manual_seed` and `torch.seed` end in this hook for devices from outside."""
    before = torch.random._seed_custom_device

    def _seed_custom_device(seed: int) -> None:
        before(seed)
        _device_module.manual_seed(seed)

    torch.random._seed_custom_device = _seed_custom_device


def _is_xla(t: torch.Tensor) -> bool:
    """Asks the tensor's keys: `t.device` would call a subclass's __torch_function__."""
    return torch._C._dispatch_keys(t).has(torch._C.DispatchKey.XLA)


def _refuse_dlpack() -> None:
    """PyTorch would look for torch_xla; DLPack knows no such device."""

    def refusing(before: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(before)
        def wrapped(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if _is_xla(self):
                raise BufferError(
                    f"DLPack has no device {self.device}\n  try: .cpu() first; it gives the values"
                )
            return before(self, *args, **kwargs)

        return wrapped

    tensor: Any = torch.Tensor
    for name in ("__dlpack__", "__dlpack_device__"):
        setattr(tensor, name, refusing(getattr(tensor, name)))


def _name_reads() -> None:
    """Reads know whether a print or numpy asked for them."""

    def named(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            before = _C.set_read_kind(kind)
            if before is not None:  # inside another named read
                _C.set_read_kind(before)
            try:
                return call(*args, **kwargs)
            finally:
                _C.set_read_kind(before)

        return wrapped

    torch._tensor_str._str = named("print", torch._tensor_str._str)
