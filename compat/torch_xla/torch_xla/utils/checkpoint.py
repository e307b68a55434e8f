"""Activation checkpoints: PyTorch's."""

from collections.abc import Callable
from typing import Any

from torch.utils import checkpoint as _checkpoint


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """torch.utils.checkpoint, reentrant unless said otherwise."""
    return _checkpoint.checkpoint(function, *args, **{"use_reentrant": True, **kwargs})
