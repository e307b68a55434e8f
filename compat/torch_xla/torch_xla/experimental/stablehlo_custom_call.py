"""Calls to the runtime's own functions: torch_pjrt's ops are PyTorch's."""

from typing import Any

import torch

from .._names import later

_INSTEAD = "torch.library.custom_op: it runs on the host between programs"
stablehlo_custom_call = later("experimental.stablehlo_custom_call.stablehlo_custom_call", _INSTEAD)
extract_custom_call_outputs_shape_dtype = later(
    "experimental.stablehlo_custom_call.extract_custom_call_outputs_shape_dtype", _INSTEAD
)


def to_host_backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    return grad


to_device_backward = to_host_backward
