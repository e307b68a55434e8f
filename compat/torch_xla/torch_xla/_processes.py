"""Processes: torch.distributed's, once there is a group; one of one before."""

import functools
import os
from typing import Any

import torch_pjrt

__all__ = ["before_client", "group_of", "initialized", "local_rank", "local_world", "rank", "world"]


def before_client() -> None:
    """CPU_NUM_DEVICES, which torch_xla reads when the client starts."""
    count = os.environ.get("CPU_NUM_DEVICES", "")
    if not count.isdecimal() or torch_pjrt.runtime.is_running():
        return
    if os.environ.get("TORCH_PJRT_CPU_DEVICES") != count:
        os.environ["TORCH_PJRT_CPU_DEVICES"] = count
        torch_pjrt.plugins.register()


def initialized() -> bool:
    """Whether there is a group of processes."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def _asked(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else otherwise


def world() -> int:
    """How many processes."""
    import torch.distributed as dist

    return dist.get_world_size() if initialized() else 1


def rank() -> int:
    import torch.distributed as dist

    return dist.get_rank() if initialized() else 0


def local_rank() -> int:
    """Among those of this machine."""
    return _asked("LOCAL_RANK", rank()) if initialized() else 0


def local_world() -> int:
    return _asked("LOCAL_WORLD_SIZE", world()) if initialized() else 1


@functools.cache
def _made(groups: tuple[tuple[int, ...], ...]) -> Any:
    import torch.distributed as dist

    mine = None
    for ranks in groups:  # each process makes all of them
        made = dist.new_group(list(ranks), backend="xla")
        mine = made if dist.get_rank() in ranks else mine
    return mine


def group_of(groups: Any) -> Any:
    """The process group among `groups` that this process is in; None for all processes."""
    return None if not groups else _made(tuple(tuple(g) for g in groups))
