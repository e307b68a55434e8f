"""Collectives with gradients, of one process."""

from typing import Any

import torch

from . import xla_model as xm

SyncBatchNorm = torch.nn.BatchNorm2d


def all_reduce(value: torch.Tensor, scale: float | None = None, groups: Any = None) -> torch.Tensor:
    return value * scale if scale is not None else value.clone()


def all_gather(value: torch.Tensor, dim: int = 0) -> torch.Tensor:
    return xm.all_gather(value, dim)
