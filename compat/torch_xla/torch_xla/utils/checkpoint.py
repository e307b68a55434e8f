"""Activation checkpoints: PyTorch's."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import checkpoint as _checkpoint
from torch.utils.checkpoint import CheckpointFunction, get_device_states, set_device_states

__all__ = [
    "CheckpointFunction", "CheckpointStatus", "checkpoint", "chkpt_status", "get_device_states",
    "set_device_states",
]  # fmt: skip


class CheckpointStatus:
    """Whether a checkpoint's forward runs again for its backward."""

    def __init__(self) -> None:
        self.in_chkpt_bwd = False


chkpt_status = CheckpointStatus()


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool = True, **kwargs: Any
) -> Any:
    """torch.utils.checkpoint, reentrant unless said otherwise."""

    def marked(*inner: Any, **named: Any) -> Any:
        before = chkpt_status.in_chkpt_bwd
        chkpt_status.in_chkpt_bwd = torch._C._current_graph_task_id() != -1
        try:
            return function(*inner, **named)
        finally:
            chkpt_status.in_chkpt_bwd = before

    return _checkpoint.checkpoint(marked, *args, use_reentrant=use_reentrant, **kwargs)
