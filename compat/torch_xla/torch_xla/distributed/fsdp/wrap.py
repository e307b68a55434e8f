"""Policies of wrapping: PyTorch's own."""

from torch.distributed.fsdp.wrap import (  # noqa: F401
    always_wrap_policy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)
