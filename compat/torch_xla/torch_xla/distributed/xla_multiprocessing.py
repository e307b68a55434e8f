"""Several processes on this machine."""

import os
import threading
from collections.abc import Callable
from typing import Any

from .. import _processes
from ..core._collectives import create_optimized_replica_groups
from ..utils.utils import get_free_tcp_ports

__all__ = [
    "MpModelWrapper", "MpSerialExecutor", "create_optimized_replica_groups",
    "device_kind_handler_dict", "spawn",
]  # fmt: skip

device_kind_handler_dict: dict[str, Any] = {}


def _one_of_many(rank: int, fn: Callable[..., Any], args: Any, count: int, port: int) -> None:
    import torch.distributed as dist

    import torch_xla  # noqa: F401 - the device, in the new process

    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank),
        "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count),
        "CPU_NUM_DEVICES": "1",
    }  # fmt: skip
    own = not dist.is_initialized()
    if own:
        dist.init_process_group("xla")
    try:
        fn(rank, *args)
    finally:
        if own and dist.is_initialized():
            dist.destroy_process_group()


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """Calls `fn(rank, *args)` in `nprocs` processes, which are a torch.distributed group "xla".

    Each has one device. Without a number there are as many as CPU_NUM_DEVICES says; one calls
    `fn(0, *args)` here.
    """
    nprocs = nprocs or _processes.asked_for()
    if nprocs == 1:
        return fn(0, *args)
    import torch.multiprocessing as mp

    more = (fn, args, nprocs, get_free_tcp_ports()[0])
    return mp.start_processes(
        _one_of_many, more, nprocs, join=join, daemon=daemon, start_method=start_method
    )


class MpModelWrapper:
    """Holds a model that all processes share; `to` gives it on the device."""

    def __init__(self, model: Any) -> None:
        self._model, self._lock = model, threading.Lock()

    def to(self, device: Any) -> Any:
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Runs a function once, for all that ask."""

    def __init__(self) -> None:
        self._lock, self._done = threading.Lock(), False
        self._result: Any = None

    def run(self, fn: Callable[[], Any]) -> Any:
        with self._lock:
            if not self._done:
                self._result, self._done = fn(), True
            return self._result
