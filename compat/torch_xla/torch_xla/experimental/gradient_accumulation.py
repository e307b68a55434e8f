"""Gradients summed over the parts of a batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._names import later_class

__all__ = ["GradientAccumulationContext", "XlaBuildHelper", "gradient_accumulation"]

XlaBuildHelper = later_class(
    "experimental.gradient_accumulation.XlaBuildHelper", "gradient_accumulation()"
)


@dataclass(frozen=True)
class GradientAccumulationContext:
    """How many parts a batch has."""

    num_gradient_steps: int
    num_iterable_tensors: int
    num_carried_tensors: int


def gradient_accumulation(
    train_step: Callable[..., Any],
    iterable_tensors: Sequence[torch.Tensor],
    model: torch.nn.Module,
    *carried_tensors: torch.Tensor,
    context: GradientAccumulationContext | None = None,
) -> Any:
    """`loss, *carried = train_step(*parts, *carried)` of each row of the batch.

    Gradients of the mean of the losses are added to the parameters'; gives that mean and what is
    carried. AssertionError where the step writes to what it is given.
    """
    if not iterable_tensors:
        raise ValueError("gradient_accumulation: expected tensors to iterate over, found none")
    count = iterable_tensors[0].shape[0]
    if any(t.shape[0] != count for t in iterable_tensors):
        raise ValueError("gradient_accumulation: the tensors differ in their first dimension")
    total: Any = 0
    carried = list(carried_tensors)
    for i in range(count):
        given = [*(t[i : i + 1] for t in iterable_tensors), *carried]
        before = [t._version for t in given]
        loss, *after = train_step(*given)
        assert [t._version for t in given] == before, "train_step writes to its arguments"
        loss = loss / count
        loss.backward()
        total, carried = total + loss.detach(), [t.detach() for t in after]
    return (total, *carried)
