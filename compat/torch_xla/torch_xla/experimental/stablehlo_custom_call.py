"""Calls to the runtime's own functions: torch_pjrt's ops are PyTorch's. Marks of places."""

from typing import Any

import torch

from .._names import later
from ._library import define

_INSTEAD = "torch.library.custom_op: it runs on the host between programs"
stablehlo_custom_call = later("experimental.stablehlo_custom_call.stablehlo_custom_call", _INSTEAD)
extract_custom_call_outputs_shape_dtype = later(
    "experimental.stablehlo_custom_call.extract_custom_call_outputs_shape_dtype", _INSTEAD
)


def to_host_backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    return grad


to_device_backward = to_host_backward


def place_to_host(t: torch.Tensor) -> torch.Tensor:
    """The same values, on the device: a program has its buffers there. Gradients pass."""
    return torch.ops.xla.place_to_host(t)  # type: ignore[no-any-return]


def place_to_device(t: torch.Tensor) -> torch.Tensor:
    """The same values, on the device. Gradients pass."""
    return torch.ops.xla.place_to_device(t)  # type: ignore[no-any-return]


define("place_to_host(Tensor t) -> Tensor", torch.clone, to_host_backward)
define("place_to_device(Tensor t) -> Tensor", torch.clone, to_device_backward)
