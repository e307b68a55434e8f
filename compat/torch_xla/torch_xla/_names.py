"""Names that are here and cannot be called yet, and those that are old."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["deprecated", "later", "later_class"]


def later(name: str, instead: str) -> Callable[..., Any]:
    """A function that says what to do instead."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"torch_xla.{name}: not on torch_pjrt\n  try: {instead}")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.__doc__ = f"Raises NotImplementedError. {instead}."
    refuse.refused = True  # type: ignore[attr-defined]
    return refuse


def later_class(name: str, instead: str) -> type:
    """A class whose instances cannot be made; isinstance() with it is False."""
    return type(name.rpartition(".")[2], (), {"__init__": later(name, instead), "refused": True})


def deprecated(name: str, instead: str, f: Callable[..., Any]) -> Callable[..., Any]:
    """`f`, which says once that it has another name."""
    told = False

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal told
        if not told:
            told = True
            warnings.warn(f"{name} is deprecated, use {instead}", DeprecationWarning, stacklevel=2)
        return f(*args, **kwargs)

    return wrapped
