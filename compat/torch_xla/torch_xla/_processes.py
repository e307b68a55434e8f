"""Processes: torch.distributed's, once there is a group; one of one before."""

import functools
import os
from typing import Any

import torch_pjrt

__all__ = [
    "asked_for", "before_client", "group_of", "initialized", "local_rank", "local_world", "rank",
    "start", "world",
]  # fmt: skip


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


def asked_for() -> int:
    """How many processes spawn() makes by itself: CPU_NUM_DEVICES, one where SPMD drives all."""
    return 1 if os.environ.get("XLA_USE_SPMD") == "1" else max(_asked("CPU_NUM_DEVICES", 1), 1)


def _launched() -> bool:
    """Whether a launcher (torchrun, accelerate) started this process as one of several."""
    return all(n in os.environ for n in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"))


def start() -> None:
    """Makes the group of the processes that a launcher started, where nobody has yet."""
    import torch.distributed as dist

    if not dist.is_initialized() and _launched():
        dist.init_process_group("xla")


def world() -> int:
    """How many processes: of the group, before there is one as the launcher says."""
    import torch.distributed as dist

    if initialized():
        return dist.get_world_size()
    return _asked("WORLD_SIZE", 1) if _launched() else 1


def rank() -> int:
    import torch.distributed as dist

    if initialized():
        return dist.get_rank()
    return _asked("RANK", 0) if _launched() else 0


def local_rank() -> int:
    """Among those of this machine."""
    return _asked("LOCAL_RANK", rank()) if initialized() or _launched() else 0


def local_world() -> int:
    return _asked("LOCAL_WORLD_SIZE", world()) if initialized() or _launched() else 1


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
