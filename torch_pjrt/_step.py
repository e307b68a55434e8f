"""`torch_pjrt.compile`: one program a call."""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from . import _C
from ._explain import no_cuts
from ._tiers import tiers

__all__ = ["compile"]

_limits: weakref.WeakKeyDictionary[Any, _C.GraphLimit] = weakref.WeakKeyDictionary()


def _limit_of(fn: Any, most: int | None) -> _C.GraphLimit | None:
    """One a function, however often it is compiled; `most` is from now on its newest."""
    if most is None:
        return None
    if most < 1:
        raise ValueError(f"compile: max_different_graphs: expected 1 or more, found {most}")
    made = _C.GraphLimit(getattr(fn, "__name__", type(fn).__name__), most)
    try:
        limit = _limits.setdefault(fn, made)
    except TypeError:  # an object without hash or weak references: only this wrapper knows it
        return made
    limit.set_most(most)
    return limit


@contextlib.contextmanager
def under(limit: _C.GraphLimit | None) -> Iterator[None]:
    """What this thread syncs inside counts as graphs of the limit's function; None: as before."""
    if limit is None:
        yield
        return
    before = _C.exchange_graph_limit(limit)
    try:
        yield
    finally:
        _C.exchange_graph_limit(before)


def compile(
    fn: Callable[..., Any] | None = None,
    *,
    full_graph: bool = False,
    max_different_graphs: int | None = None,
) -> Any:
    """Makes each call of `fn` one program, from the first call on.

    What was recorded before is run first, what the call records at its end. With `full_graph` a
    read inside `fn` raises a RuntimeError at its line instead of cutting the program in two.
    With `max_different_graphs` a call whose graph is none of the first so many raises a
    RuntimeError that names the difference and its lines, before anything is compiled: its results
    stay recorded. Other values are the same graph, other sizes and ops are another one, and a read
    inside cuts a call into two. The count is the function's, in all threads and wrappers.
    Without `fn` a decorator. `fn` runs as Python each time; `capture` replays it.

    Raises ValueError for a `max_different_graphs` below 1.
    """
    if fn is None:
        return functools.partial(
            compile, full_graph=full_graph, max_different_graphs=max_different_graphs
        )
    limit = _limit_of(fn, max_different_graphs)

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _C.sync(False)
        with under(limit), tiers("off"):
            with no_cuts() if full_graph else contextlib.nullcontext():
                out = fn(*args, **kwargs)
            _C.sync(False)
        return out

    return wrapped
