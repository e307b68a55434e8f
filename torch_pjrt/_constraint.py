"""A sharding constraint as an operator, for torch.compile: what `spmd.mark_sharding` is there."""

from typing import Any

import torch

from . import _C

__all__ = ["constrain"]


@torch.library.custom_op("torch_pjrt::constrain", mutates_args=())
def constrain(
    t: torch.Tensor, devices: list[int], axes: str, sizes: list[int], spec: str
) -> torch.Tensor:
    """`t` as `spec` says: axes of a dimension joined by "+", dimensions by ","."""
    named = list(zip(axes.split(","), sizes, strict=True))
    by_dimension = [[a for a in d.split("+") if a] for d in spec.split(",")] if t.dim() else []
    out: torch.Tensor = _C.constrained(t, _C.make_sharding(devices, named, by_dimension))
    return out


@constrain.register_fake
def _fake(
    t: torch.Tensor, devices: list[int], axes: str, sizes: list[int], spec: str
) -> torch.Tensor:
    return torch.empty_like(t)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    _, *ctx.how = inputs


def _backward(ctx: Any, grad: torch.Tensor) -> Any:
    return constrain(grad, *ctx.how), None, None, None, None


constrain.register_autograd(_backward, setup_context=_setup)
