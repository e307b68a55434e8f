"""Constraints of tensor-parallel styles as an operator, for torch.compile.

Outside of it a style's own hooks run. Dynamo cannot look into meshes, so what torch's styles do is
written down when a module is distributed: for each value the constraints one after another, by the
value's number of dimensions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _C
from ._view_tensor import handle

__all__ = ["Place", "into", "placed", "steps_of_input", "steps_of_output", "through"]

_MOST_DIMS = 8
_handles: dict[str, Any] = {}


@torch.library.custom_op("torch_pjrt::placed", mutates_args=())
def placed(t: torch.Tensor, ahead: str, back: str) -> torch.Tensor:
    """The value with the constraint `ahead`, its gradient with `back` ("": none)."""
    out: torch.Tensor = _C.constrained(t, _handles[ahead])
    return out


@placed.register_fake
def _fake(t: torch.Tensor, ahead: str, back: str) -> torch.Tensor:
    return torch.empty_like(t)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.back = inputs[2]


def _backward(ctx: Any, grad: torch.Tensor) -> Any:
    return placed(grad, ctx.back, ctx.back) if ctx.back else grad, None, None


placed.register_autograd(_backward, setup_context=_setup)


class Place:
    """Placements over a mesh, and those of the gradient (None: none), by number of dimensions."""

    def __init__(self, mesh: Any, placements: Sequence[Any], back: Sequence[Any] | None) -> None:
        self.ahead = _texts(mesh, placements)
        self.back = dict.fromkeys(self.ahead, "") if back is None else _texts(mesh, back)

    def __call__(self, t: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = placed(t, self.ahead[t.dim()], self.back[t.dim()])
        return out


def _texts(mesh: Any, placements: Sequence[Any]) -> dict[int, str]:
    found = {}
    for rank in range(1, _MOST_DIMS + 1):
        try:
            made = handle(mesh, placements, rank)
        except IndexError:  # a Shard of a dim that such values have not
            continue
        _handles[made.text] = made
        found[rank] = made.text
    return found


def through(steps: list[Place], t: Any) -> Any:
    """The value with all of them."""
    for step in steps:
        t = step(t)
    return t


def _style(f: Any, name: str) -> tuple[Any, ...] | None:
    """The arguments that a style of torch bound to its hook; None for a function of others."""
    if not isinstance(f, functools.partial):
        return None
    inner: Callable[..., Any] = f.func
    ours = inner.__module__ == "torch.distributed.tensor.parallel.style"
    return f.args if ours and inner.__name__ == name else None


def into(mesh: Any, given: Any, wanted: Any) -> list[Place]:
    """A value taken as `given` and moved to `wanted`."""
    steps = [Place(mesh, given, given)]
    return [*steps, Place(mesh, wanted, given)] if wanted and wanted != given else steps


def steps_of_input(mesh: Any, f: Any) -> list[Place] | None:
    """What a style does with a module's first argument; None: nobody knows."""
    bound: Sequence[Any] | None = [] if f is None else _style(f, "_prepare_input_fn")
    if bound is None:
        return None
    return into(mesh, bound[0], bound[1] if len(bound) > 1 else None) if bound else []


def steps_of_output(mesh: Any, f: Any) -> list[Place] | None:
    """What a style does with a module's result."""
    bound: Sequence[Any] | None = [] if f is None else _style(f, "_prepare_output_fn")
    if bound is None:
        return None
    return [Place(mesh, bound[0], None)] if len(bound) > 1 else []
