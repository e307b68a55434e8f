"""Policies of wrapping: PyTorch's own."""

from torch.distributed.fsdp.wrap import _recursive_wrap as recursive_wrap
from torch.distributed.fsdp.wrap import (
    always_wrap_policy,
    lambda_auto_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)

__all__ = [
    "always_wrap_policy", "lambda_auto_wrap_policy", "recursive_wrap",
    "size_based_auto_wrap_policy", "transformer_auto_wrap_policy",
]  # fmt: skip
