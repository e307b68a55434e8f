"""Where torch.optim has to know the device: `fused=True`, and state whose first step differs.

PyTorch lists the devices that have fused optimizers by name; ours joins the list. State is made so
that step 1 is step 2's program.

SGD with momentum starts its buffer as a copy of the gradient; later steps compute
`buffer * momentum + grad`. A buffer of zeros gives the same (0 * momentum + grad is grad), so zeros
are put there before the first step. Adam and its kin start from zeros anyway.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.optim.optimizer as torch_optimizer
import torch.optim.sgd as torch_sgd
from torch.utils import _foreach_utils

__all__ = ["install"]


def _starts_exactly(momentum: Any, dampening: Any) -> bool:
    """Whether zeros are exact: no dampening (the first step leaves it out), finite momentum."""
    return (
        isinstance(momentum, int | float)
        and momentum != 0
        and math.isfinite(momentum)
        and dampening == 0
    )


def _start_from_zeros(sgd: Callable[..., None]) -> Callable[..., None]:
    """`torch.optim.sgd.sgd`, which SGD.step calls and keeps the buffers of."""

    @functools.wraps(sgd)
    def wrapped(
        params: list[torch.Tensor],
        d_p_list: list[torch.Tensor],
        momentum_buffer_list: list[torch.Tensor | None],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        for i, buffer in enumerate(momentum_buffer_list):
            if buffer is not None or params[i].device.type != "xla":
                continue
            if _starts_exactly(kwargs.get("momentum"), kwargs.get("dampening")):
                momentum_buffer_list[i] = torch.zeros_like(d_p_list[i])
        sgd(params, d_p_list, momentum_buffer_list, *args, **kwargs)

    return wrapped


def _join_fused_devices() -> None:
    before = _foreach_utils._get_fused_kernels_supported_devices

    @functools.wraps(before)
    def devices() -> list[str]:
        return [*before(), "xla"]

    for module in (_foreach_utils, torch_optimizer):
        setattr(module, before.__name__, devices)


def install() -> None:
    """Puts both in place. A step costs what it did."""
    _join_fused_devices()
    torch_sgd.sgd = _start_from_zeros(torch_sgd.sgd)
