"""Ops that are written with xla_builder."""

from collections.abc import Callable
from typing import Any

from . import xla_builder as xb


class Op:
    """A function of xb.Op, called with tensors."""

    def __init__(self, name: str, opfn: Callable[..., Any]) -> None:
        self._name, self._fn = name, opfn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = xb.run(self._fn, args, kwargs)
        return out[0] if len(out) == 1 else out


def register(name: str, opfn: Callable[..., Any]) -> Op:
    """`opfn` takes an xb.Op for each tensor, and keywords."""
    return Op(name, opfn)
