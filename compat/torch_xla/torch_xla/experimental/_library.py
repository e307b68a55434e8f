"""The library of ops named `xla::...`."""

from collections.abc import Callable
from typing import Any

import torch

XLA_LIB = torch.library.Library("xla", "FRAGMENT")


def define(schema: str, fn: Callable[..., Any]) -> None:
    """An op of that schema: `fn` of PyTorch's ops, on any device."""
    name = schema.partition("(")[0]
    if hasattr(torch.ops.xla, name):  # another copy of this module made it
        return
    XLA_LIB.define(schema)
    XLA_LIB.impl(name, fn, "CompositeImplicitAutograd")
