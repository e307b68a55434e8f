"""Sizes that a program finds out: programs have fixed ones."""

from .._names import later
from ._library import XLA_LIB

_INSTEAD = "expand and view with numbers"
_NAMES = (
    "dynamic_expand", "dynamic_expand_meta", "dynamic_expand_xla", "dynamic_view",
    "dynamic_view_meta", "dynamic_view_xla",
)  # fmt: skip
globals().update({n: later(f"experimental.xla_dynamic_reshape_ops.{n}", _INSTEAD) for n in _NAMES})
__all__ = [*_NAMES, "XLA_LIB"]
