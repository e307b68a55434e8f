"""Processes: one."""

import threading
from collections.abc import Callable
from typing import Any

from .._names import ONE_PROCESS, later


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int | None = None,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> None:
    """Calls `fn(0, *args)` here. More than one process is refused."""
    if nprocs not in (None, 1):
        later(f"distributed.xla_multiprocessing.spawn(nprocs={nprocs})", ONE_PROCESS)()
    fn(0, *args)


class MpModelWrapper:
    """Holds a model that all processes share; `to` gives it on the device."""

    def __init__(self, model: Any) -> None:
        self._model, self._lock = model, threading.Lock()

    def to(self, device: Any) -> Any:
        with self._lock:
            return self._model.to(device)


class MpSerialExecutor:
    """Runs functions one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, fn: Callable[[], Any]) -> Any:
        with self._lock:
            return fn()
