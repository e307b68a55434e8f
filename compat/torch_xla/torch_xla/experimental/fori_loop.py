"""Loops of the program."""

from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt import _control

__all__ = ["fori_loop", "while_loop"]


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any,
    additional_inputs: Any = (),
) -> Any:  # fmt: skip
    """`carried = body_fn(*carried)` while cond_fn(*carried)."""

    def body(*args: torch.Tensor) -> list[torch.Tensor]:
        out = body_fn(*args)
        return list(out) if isinstance(out, tuple | list) else [out]

    more = list(additional_inputs or ())
    return tuple(_control.while_loop("while_loop", cond_fn, body, list(carried_inputs), more))


def fori_loop(upper: Any, lower: Any, body_fun: Callable[..., Any], init_val: Any, *more: Any) -> Any:  # noqa: E501 # fmt: skip
    """`value = body_fun(value, ...)` for each number from `lower` to `upper`."""
    first, last = (torch.as_tensor(x).reshape(()).to("xla") for x in (lower, upper))
    values = list(init_val) if isinstance(init_val, tuple | list) else [init_val]

    def body(i: torch.Tensor, *args: torch.Tensor) -> list[torch.Tensor]:
        out = body_fun(*args)
        return [i + 1, *(out if isinstance(out, tuple | list) else [out])]

    out = _control.while_loop(
        "fori_loop", lambda i, *_: i < last, body, [first.clone(), *values], list(more)
    )
    return tuple(out)
