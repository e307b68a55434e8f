"""A barrier between blocks: what a block computes begins when all that it reads is there.

Without one a compiler may gather the weights of every block at a program's start and keep them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from . import _C

__all__ = ["barrier", "blocks_of", "fence"]


class _Barrier(torch.autograd.Function):
    """The values; gradients pass a barrier of their own."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        values = tuple(_C.optimization_barrier(tensors))
        wanted = zip(values, ctx.needs_input_grad, strict=True)
        ctx.mark_non_differentiable(*(v for v, needed in wanted if not needed))
        return values

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        behind = iter(barrier([g for g in grads if g is not None]))
        return tuple(None if g is None else next(behind) for g in grads)


def barrier(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same values in new tensors of device xla, dense; differentiable."""
    return list(_Barrier.apply(*tensors)) if tensors else []  # type: ignore[no-untyped-call]


def blocks_of(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The items of the outermost ModuleLists and Sequentials in it; where there is none, itself."""

    def found(m: torch.nn.Module) -> list[torch.nn.Module]:
        if isinstance(m, (torch.nn.ModuleList, torch.nn.Sequential)):
            return list(m)
        return [b for child in m.children() for b in found(child)]

    return [b for b in found(module) if next(b.parameters(), None) is not None] or [module]


class _Fence:
    """Hooks of a block: its inputs and parameters go through one barrier before each call."""

    def __init__(self, block: torch.nn.Module) -> None:
        self.owned = [(m, name) for m in block.modules() for name in m._parameters]

    def before(self, block: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return None
        flat, spec = tree_flatten((args, kwargs))
        inputs = [i for i, t in enumerate(flat) if _on_device(t)]
        places = [(m, n) for m, n in self.owned if _on_device(m._parameters[n])]
        weights = [m.__dict__.get(n, m._parameters[n]) for m, n in places]  # a cast of it, if any
        values = barrier([flat[i] for i in inputs] + weights)
        for i, value in zip(inputs, values, strict=False):
            flat[i] = value
        for (m, n), value in zip(places, values[len(inputs) :], strict=True):
            m.__dict__[n] = value  # found before the Parameter, until the call is over
        return tree_unflatten(flat, spec)

    def after(self, block: torch.nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        for m, n in self.owned:
            m.__dict__.pop(n, None)


def _on_device(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.device.type == "xla"


def fence(blocks: Iterable[torch.nn.Module]) -> None:
    """A barrier before each call of these modules, and behind their backward pass.

    Compiled code (torch.compile) has none.
    """
    for block in blocks:
        made = _Fence(block)
        block.register_forward_pre_hook(made.before, with_kwargs=True)
        block.register_forward_hook(made.after, always_call=True)
