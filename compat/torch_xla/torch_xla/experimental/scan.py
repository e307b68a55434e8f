"""Loops over leading dimensions, as one loop of the program."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _control

from .._names import later, later_class
from ..distributed.spmd.xla_sharding import shard_as
from .pytreeify import pytreeify

__all__ = [
    "Builder", "Carry", "Scan", "U", "X", "Y", "dynamic_slice", "dynamic_update_slice",
    "pytreeify", "scan", "shard_as", "split", "tree_flatten_none", "value_and_grad_partitioned",
]  # fmt: skip

Carry, X, Y, U = TypeVar("Carry"), TypeVar("X"), TypeVar("Y"), TypeVar("U")
_SCAN_COMPUTATION_CACHE: dict[Any, Any] = {}
_INSTEAD = "scan(): loop and gradients are recorded by torch_pjrt"
Builder = later_class("experimental.scan.Builder", _INSTEAD)
Scan = later_class("experimental.scan.Scan", _INSTEAD)
value_and_grad_partitioned = later("experimental.scan.value_and_grad_partitioned", _INSTEAD)


def tree_flatten_none(tree: Any) -> tuple[list[Any], Callable[[Any], Any]]:
    """Leaves but for None, and what puts them back."""
    leaves, spec = pytree.tree_flatten(tree)
    places = [i for i, x in enumerate(leaves) if x is not None]

    def unflatten(flat: Any) -> Any:
        full: list[Any] = [None] * len(leaves)
        for i, x in zip(places, flat, strict=True):
            full[i] = x
        return pytree.tree_unflatten(full, spec)

    return [leaves[i] for i in places], unflatten


class _Body:
    """`fn` over flat lists; notes what its results are like."""

    def __init__(self, fn: Any, init_un: Any, xs_un: Any, counts: tuple[int, int]) -> None:
        self.fn, self.init_un, self.xs_un, self.counts = fn, init_un, xs_un, counts
        self.restore: Any = None

    def __call__(self, *flat: torch.Tensor) -> list[torch.Tensor]:
        n = self.counts[0]
        carry, y = self.fn(self.init_un(flat[:n]), self.xs_un(flat[n:]))
        carried, restore_carry = tree_flatten_none(carry)
        outs, restore_y = tree_flatten_none(y)
        if len(carried) != n:
            raise ValueError(f"scan: fn is given {n} carried tensors and gives {len(carried)}")
        self.restore = (restore_carry, restore_y)
        return [*carried, *outs]


def scan(
    fn: Callable[..., Any],
    init: Any,
    xs: Any,
    partition_fn: Any = None,
    is_fn_pure: bool = False,
) -> tuple[Any, Any]:
    """`carry, y = fn(carry, x)` over dim 0 of `xs`: the last carry and the ys, stacked.

    Containers may hold None. What autograd saves is chosen by torch_pjrt: `partition_fn` and
    `is_fn_pure` change nothing.
    """
    if not callable(fn):
        raise ValueError(f"scan: fn must be callable, found {type(fn).__name__}")
    carried, init_un = tree_flatten_none(init)
    scanned, xs_un = tree_flatten_none(xs)
    lengths = {t.shape[0] for t in scanned}
    if len(lengths) != 1:
        raise ValueError(f"scan: xs must be of one length along dim 0, found {sorted(lengths)}")
    body = _Body(fn, init_un, xs_un, (len(carried), len(scanned)))
    length = lengths.pop()
    outs = _control.scan("torch_xla scan", body, carried, scanned, length=length)
    restore_carry, restore_y = body.restore
    return restore_carry(outs[: len(carried)]), restore_y(outs[len(carried) :])


def split(pytree_: Any, index: int) -> tuple[Any, Any]:
    """The first `index` of a sequence, and the rest."""
    return pytree_[:index], pytree_[index:]


def dynamic_slice(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Gives x[index]."""
    return x.index_select(0, index.reshape(1))[0]


def dynamic_update_slice(x: torch.Tensor, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Gives x with x[index] = value."""
    return x.index_copy(0, index.reshape(1), value.unsqueeze(0))
