"""A machine that is about to go says so by SIGTERM: all processes then agree on a step to save."""

import signal
from typing import Any

import torch

from .. import _processes

__all__ = [
    "_activate_preemption_sync_manager", "_deactivate_preemption_sync_manager",
    "_ensure_xla_coordinator_initialized", "_sync_point_reached",
]  # fmt: skip

_state: dict[str, Any] = {"told": False, "on": False, "before": None}


def _ensure_xla_coordinator_initialized(
    global_rank: int = 0, world_size: int = 1, master_addr: str = "", master_port: str = ""
) -> None:
    """Processes meet in torch.distributed's store: there is nothing to start."""


def _told(number: int, frame: Any) -> None:
    _state["told"] = True
    if callable(_state["before"]):
        _state["before"](number, frame)


def _activate_preemption_sync_manager() -> None:
    """From now on SIGTERM is noted and does not end the process. Called by the main thread."""
    if not _state["on"]:
        _state["before"] = signal.signal(signal.SIGTERM, _told)
        _state["on"] = True


def _deactivate_preemption_sync_manager() -> None:
    """SIGTERM does again what it did before."""
    if _state["on"]:
        signal.signal(signal.SIGTERM, _state["before"] or signal.SIG_DFL)
        _state.update(told=False, on=False, before=None)


def _sync_point_reached(step: int) -> bool:
    """Whether a process was told to end; each process asks at the same steps."""
    if not _state["on"]:
        raise RuntimeError("_sync_point_reached: nobody called _activate_preemption_sync_manager")
    if _processes.world() == 1:
        return bool(_state["told"])
    import torch.distributed as dist

    _processes.start()
    any_told = torch.tensor(int(_state["told"]))
    dist.all_reduce(any_told, dist.ReduceOp.MAX)
    return bool(any_told)
