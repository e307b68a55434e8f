"""jax beside this package: none is needed, and none brought."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any


def maybe_get_jax() -> Any:
    """The module jax where it is installed, else None."""
    return _maybe("jax")


def maybe_get_torchax() -> Any:
    """The module torchax where it is installed, else None."""
    return _maybe("torchax")


def _maybe(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


def jax_import_guard() -> None:
    """Nothing to set up: jax's own client and ours do not meet."""


@contextlib.contextmanager
def jax_env_context() -> Iterator[None]:
    """Nothing to set up."""
    yield


def requires_jax(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Raises ImportError where jax is missing."""

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        import_module("jax")
        return fn(*args, **kwargs)

    return wrapped
