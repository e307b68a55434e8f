"""Names that move."""

from collections.abc import Callable
from typing import Any, TypeVar

from .._names import deprecated as _deprecated

FN = TypeVar("FN", bound=Callable[..., Any])


def deprecated(module: Any, new: Callable[..., Any], old_name: str = "") -> Callable[..., Any]:
    """`new`, which says once that it replaces the old name of `module`."""
    old = old_name or getattr(new, "__name__", "a name")
    name = getattr(module, "__name__", "torch_xla")
    return _deprecated(f"{name}.{old}", f"{new.__module__}.{new.__name__}", new)


def mark_deprecated(new: Callable[..., Any], extra_msg: str = "") -> Callable[..., Any]:
    """Decorator: says once that `new` takes its place."""
    return lambda old: _deprecated(old.__name__, f"{new.__module__}.{new.__name__}", old)


def register_deprecated(module: Any, new: Callable[..., Any], old_name: str = "") -> None:
    """Puts the old name into `module`."""
    setattr(module, old_name or new.__name__, deprecated(module, new, old_name))
