"""`torch_pjrt.compile`: one program a call."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from . import _C
from ._explain import no_cuts

__all__ = ["compile"]


def compile(fn: Callable[..., Any] | None = None, *, full_graph: bool = False) -> Any:
    """Makes each call of `fn` one program.

    What was recorded before is run first, what the call records at its end. With `full_graph` a
    read inside `fn` raises a RuntimeError at its line instead of cutting the program in two.
    Without `fn` a decorator. `fn` runs as Python each time; `capture` replays it.
    """
    if fn is None:
        return functools.partial(compile, full_graph=full_graph)

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _C.sync(False)
        with no_cuts() if full_graph else contextlib.nullcontext():
            out = fn(*args, **kwargs)
        _C.sync(False)
        return out

    return wrapped
