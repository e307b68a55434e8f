"""Traces by torch.profiler, and names in them."""

import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import torch_pjrt

from .._internal.jax_workarounds import maybe_get_jax

__all__ = [
    "StepTrace", "Trace", "get_tracer_marked_step", "maybe_get_jax", "set_tracer_marked_step",
    "start_server", "start_trace", "stop_trace", "trace", "trace_detached", "trace_me",
]  # fmt: skip

_state: dict[str, Any] = {"running": None, "marked": False}


def start_server(port: int, only_on_master: bool = True) -> object:
    """There is no server: start_trace() writes what torch.profiler records."""
    return object()


def start_trace(log_dir: Any, **_: Any) -> None:
    """Records until stop_trace(); one at a time."""
    if _state["running"] is not None:
        raise RuntimeError("Only one profile may be run at a time.")
    torch.xla.is_available()  # type: ignore[attr-defined]
    made = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    made.start()
    _state["running"] = (made, Path(log_dir))


def stop_trace() -> None:
    """Writes LOG_DIR/trace-TIME.json, a Chrome trace."""
    if _state["running"] is None:
        raise RuntimeError("No profile started")
    made, folder = _state["running"]
    _state["running"] = None
    torch_pjrt.sync(wait=True)
    made.stop()
    folder.mkdir(parents=True, exist_ok=True)
    made.export_chrome_trace(str(folder / f"trace-{time.time_ns()}.json"))


def trace(service_addr: str, logdir: str, duration_ms: int = 1000, **_: Any) -> None:
    """Records that long. There is no other process to ask."""
    start_trace(logdir)
    time.sleep(duration_ms / 1000)
    stop_trace()


def trace_detached(*args: Any, **kwargs: Any) -> None:
    """trace() in a thread of its own."""
    threading.Thread(target=trace, args=args, kwargs=kwargs, daemon=True).start()


def set_tracer_marked_step(value: bool) -> None:
    _state["marked"] = value


def get_tracer_marked_step() -> bool:
    return bool(_state["marked"])


class Trace:
    """A name for what is recorded inside, in traces and in programs."""

    def __init__(self, name: str, **_: Any) -> None:
        self._name = name
        self._scope, self._record = torch_pjrt.scope(name), torch.profiler.record_function(name)

    def __enter__(self) -> "Trace":
        self._scope.__enter__()
        self._record.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._record.__exit__(*error)
        self._scope.__exit__(*error)


class StepTrace(Trace):
    """A named step: ends with a sync."""

    def __init__(self, name: str, step_num: int | None = None, **_: Any) -> None:
        super().__init__(name if step_num is None else f"{name}#{step_num}")

    def __enter__(self) -> "StepTrace":
        set_tracer_marked_step(True)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            from ..torch_xla import sync

            sync()
        super().__exit__(*error)


def trace_me(name: str) -> Callable[..., Any]:
    """Decorator: the function under that name."""

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with Trace(name):
                return fn(*args, **kwargs)

        return wrapped

    return decorate
