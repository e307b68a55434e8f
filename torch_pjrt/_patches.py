"""Where PyTorch does not know the device `xla` by itself, put right once, at import.

`torch.accelerator` is left alone: its list of devices is fixed in C++ and lacks XLA, so
`torch.accelerator.is_available()` stays false. Use `torch.xla` or `torch_pjrt`.
"""

import atexit
import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch

from . import _C, _device_module, _dynamo, _load, _optim, _storage

__all__ = ["install"]


def install() -> None:
    """Puts all of it in place; a second call changes nothing."""
    if getattr(torch, "xla", None) is _device_module:
        return
    torch._register_device_module("xla", _device_module)
    # `module.to("xla")` then keeps its Parameter objects, so optimizers made before stay right.
    torch.__future__.set_swap_module_params_on_conversion(True)
    _convert_scripts_without_swap()
    _seed_with_torch()
    _refuse_dlpack()
    _storage.install()
    _load.install()
    _optim.install()
    _dynamo.install()
    _name_reads()
    atexit.register(_C.prepare_exit)


def _convert_scripts_without_swap() -> None:
    """TorchScript's modules hold their tensors in C++, where they are set, not swapped."""
    script: Any = torch.jit.ScriptModule
    before = script._apply

    @functools.wraps(before)
    def _apply(self: Any, fn: Callable[..., Any], recurse: bool = True) -> Any:
        first = next(itertools.chain(self.parameters(), self.buffers()), None)
        if first is not None and "xla" in (first.device.type, fn(first.new_empty(0)).device.type):
            return _set_each(self, fn, recurse)
        swap = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(False)
        try:
            return before(self, fn, recurse)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(swap)

    script._apply = _apply


@torch.no_grad()
def _set_each(module: Any, fn: Callable[..., Any], recurse: bool) -> Any:
    for child in module.children() if recurse else ():
        _set_each(child, fn, recurse)
    for name, t in (*module._parameters.items(), *module._buffers.items()):
        if t is None:
            continue
        made = fn(t.detach()).requires_grad_(t.requires_grad)
        if t.grad is not None:
            made.grad = fn(t.grad)
        module._c.setattr(name, made)
    return module


def _seed_with_torch() -> None:
    """`torch.manual_seed` and `torch.seed` end in this hook for devices from outside."""
    before = torch.random._seed_custom_device

    def _seed_custom_device(seed: int) -> None:
        before(seed)
        _device_module.manual_seed(seed)

    torch.random._seed_custom_device = _seed_custom_device


def _refuse_dlpack() -> None:
    """PyTorch would look for torch_xla; DLPack knows no such device."""

    def refusing(before: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(before)
        def wrapped(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self.device.type == "xla":
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
