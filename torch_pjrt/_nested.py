"""Nested tensors of the strided layout: PyTorch would fail with an internal assert."""

import functools
from typing import Any

import torch

__all__ = ["install"]


def install() -> None:
    """`torch.nested.nested_tensor(..., device="xla")` says what to use instead."""
    before = torch.nested.nested_tensor

    @functools.wraps(before)
    def nested_tensor(tensor_list: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        device = kwargs.get("device")
        jagged = kwargs.get("layout") is torch.jagged
        if device is not None and not jagged and torch.device(device).type == "xla":
            raise NotImplementedError(
                "device xla has dense tensors only, no nested tensors of the strided layout\n"
                "  try: torch.nested with layout=torch.jagged, or a padded tensor and a mask"
            )
        return before(tensor_list, *args, **kwargs)

    torch.nested.nested_tensor = nested_tensor
