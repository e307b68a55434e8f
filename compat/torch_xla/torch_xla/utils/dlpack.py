"""dlpack, through the CPU's memory."""

from typing import Any

import torch


def to_dlpack(xla_tensor: torch.Tensor) -> Any:
    """A capsule over a copy on the CPU."""
    return torch.utils.dlpack.to_dlpack(xla_tensor.cpu())


def from_dlpack(ext_data: Any) -> torch.Tensor:
    return torch.from_dlpack(ext_data).to("xla")
