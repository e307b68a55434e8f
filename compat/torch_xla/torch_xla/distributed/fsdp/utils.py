"""What FSDP is configured with."""

from typing import Any

import torch

from ...core import _collectives as c
from ...utils.checkpoint import checkpoint
from ..spmd._linear import XLAPatchedLinear, apply_xla_patch_to_nn_linear

__all__ = [
    "BucketizedReduceScatter", "DummyReduceScatter", "XLAPatchedLinear",
    "apply_xla_patch_to_nn_linear", "checkpoint", "checkpoint_module", "dummy_all_gather",
    "dummy_all_reduce",
]  # fmt: skip


def checkpoint_module(module: Any) -> Any:
    """The module, whose forward is checkpointed."""
    forward = module.forward
    module.forward = lambda *args, **kwargs: checkpoint(forward, *args, **kwargs)
    return module


def dummy_all_gather(value: torch.Tensor, dim: int = 0, groups: Any = None) -> torch.Tensor:
    """Of all_gather's shape: this process's value again and again."""
    return torch.cat([value] * c._size(groups), dim)


def dummy_all_reduce(reduce_type: str, inputs: Any, scale: float = 1.0, **_: Any) -> Any:
    """Scaled, not reduced."""
    if isinstance(inputs, torch.Tensor):
        return inputs * scale
    return [t.mul_(scale) for t in inputs]


class DummyReduceScatter:
    """Of reduce_scatter's shape, not reduced."""

    def __init__(self, shard_count: int, *_: Any, **__: Any) -> None:
        self.shard_count = shard_count
        self.scale = 1.0

    def __call__(self, input: torch.Tensor, callback: Any = None) -> Any:
        out = input.chunk(self.shard_count)[0] * self.scale
        return out if callback is None else callback(out)

    def flush(self) -> None:
        """Nothing waits."""


class BucketizedReduceScatter:
    """reduce_scatter along dim 0; each input goes at once."""

    def __init__(self, bucket_size_mb: float, shard_count: int, groups: Any = None, pin_layout: bool = True) -> None:  # noqa: E501 # fmt: skip
        self.shard_count, self.groups, self.scale = shard_count, groups, 1.0

    def __call__(self, input: torch.Tensor, callback: Any = None) -> Any:
        out = c.reduce_scatter(c.REDUCE_SUM, input, self.scale, 0, self.shard_count, self.groups)
        return out if callback is None else callback(out)

    def flush(self) -> None:
        """Nothing waits."""
