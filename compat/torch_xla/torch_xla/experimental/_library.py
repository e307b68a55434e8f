"""The library of ops named `xla::...`."""

from collections.abc import Callable
from typing import Any

import torch

XLA_LIB = torch.library.Library("xla", "FRAGMENT")


def define(schema: str, fn: Callable[..., Any], backward: Callable[..., Any] | None = None) -> None:
    """An op of that schema: `fn` of PyTorch's ops, on any device.

    With `backward(ctx, gradient)` it stays one op in traces of torch.compile and torch.export.
    """
    name = schema.partition("(")[0]
    if hasattr(torch.ops.xla, name):  # another copy of this module made it
        return
    XLA_LIB.define(schema)
    if backward is None:
        XLA_LIB.impl(name, fn, "CompositeImplicitAutograd")
        return
    XLA_LIB.impl(name, fn, "CompositeExplicitAutograd")
    torch.library.register_autograd(f"xla::{name}", backward, lib=XLA_LIB)
