"""torch.autograd.Function over nested containers."""

from typing import Any

import torch
from torch.utils import _pytree as pytree


def pytreeify(cls: type[torch.autograd.Function]) -> Any:
    """`cls`, whose forward and backward take and give containers of tensors."""

    class Flat(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, spec: Any, *flat: Any) -> Any:
            out = cls.forward(ctx, *pytree.tree_unflatten(list(flat), spec))
            leaves, ctx.out_spec = pytree.tree_flatten(out)
            spec_of_last.append(ctx.out_spec)
            return tuple(leaves)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            out = cls.backward(ctx, *_as_args(pytree.tree_unflatten(list(grads), ctx.out_spec)))
            return (None, *pytree.tree_leaves(out, is_leaf=lambda x: x is None))

    spec_of_last: list[Any] = []

    class Pytreeified(cls):  # type: ignore[misc, valid-type]
        @staticmethod
        def apply(*args: Any) -> Any:
            flat, spec = pytree.tree_flatten(args)
            out = Flat.apply(spec, *flat)
            return pytree.tree_unflatten(list(out), spec_of_last.pop())

    Pytreeified.__name__, Pytreeified.__doc__ = cls.__name__, cls.__doc__
    return Pytreeified


def _as_args(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
