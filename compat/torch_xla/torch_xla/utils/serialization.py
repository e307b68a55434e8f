"""Saving: one file, torch.save's."""

from typing import Any

import torch

from ..core import xla_model as xm


def save(data: Any, path: Any, master_only: bool = True, global_master: bool = False) -> None:
    """With tensors on the CPU."""
    torch.save(xm._maybe_convert_to_cpu(data), path)


def load(path: Any) -> Any:
    return torch.load(path)
