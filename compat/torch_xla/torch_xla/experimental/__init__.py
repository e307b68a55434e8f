"""Eager mode and what is experimental."""

from . import dynamo_mark_sharding, dynamo_set_buffer_donor, plugins
from .eager import eager_mode, eager_mode_context, is_eager_mode

__all__ = [
    "dynamo_mark_sharding", "dynamo_set_buffer_donor", "eager_mode", "eager_mode_context",
    "is_eager_mode",
    "plugins",
]  # fmt: skip
