"""Names in traces. Recording itself is torch.profiler's."""

from collections.abc import Callable
from typing import Any

import torch

import torch_pjrt

from .._names import later

_INSTEAD = "torch.profiler.profile(): it shows torch_pjrt's sections, compiles and launches"
start_server = later("debug.profiler.start_server", _INSTEAD)
trace = later("debug.profiler.trace", _INSTEAD)
trace_detached = later("debug.profiler.trace_detached", _INSTEAD)
start_trace = later("debug.profiler.start_trace", _INSTEAD)
stop_trace = later("debug.profiler.stop_trace", _INSTEAD)


class Trace:
    """A name for what is recorded inside, in traces and in programs."""

    def __init__(self, name: str, **_: Any) -> None:
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

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            torch_pjrt.sync()
        super().__exit__(*error)


def trace_me(name: str) -> Callable[..., Any]:
    """Decorator: the function under that name."""
    return torch_pjrt.scope(name)
