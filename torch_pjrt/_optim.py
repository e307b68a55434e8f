"""Where torch.optim has to know the device: `fused=True`, and state whose first step differs.

PyTorch lists the devices that have fused optimizers by name; ours joins the list. State is made so
that step 1 is step 2's program.

SGD with momentum starts its buffer as a copy of the gradient; later steps compute
`buffer * momentum + grad`. A buffer of zeros gives the same (0 * momentum + grad is grad), so zeros
are put there before the first step. Adam and its kin start from zeros anyway.
"""

import functools
import math
from typing import Any

import torch
import torch.optim.optimizer as torch_optimizer
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils import _foreach_utils

__all__ = ["install"]


def _starts_exactly(group: dict[str, Any]) -> bool:
    """Whether zeros are exact: no dampening (the first step leaves it out), finite momentum."""
    momentum = group["momentum"]
    return (
        isinstance(momentum, int | float)
        and momentum != 0
        and math.isfinite(momentum)
        and group["dampening"] == 0
    )


@torch.no_grad()
def _zero_momentum(optimizer: torch.optim.SGD) -> None:
    for group in optimizer.param_groups:
        if not _starts_exactly(group):
            continue
        for p in group["params"]:
            if p.device.type != "xla" or p.grad is None:
                continue
            state = optimizer.state[p]
            if state.get("momentum_buffer") is None:
                state["momentum_buffer"] = torch.zeros_like(p.grad)


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    del args, kwargs
    if not isinstance(optimizer, torch.optim.SGD):
        return
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    if len(optimizer.state) < count:  # every parameter has its state: nothing to start
        _zero_momentum(optimizer)


def _join_fused_devices() -> None:
    before = _foreach_utils._get_fused_kernels_supported_devices

    @functools.wraps(before)
    def devices() -> list[str]:
        return [*before(), "xla"]

    for module in (_foreach_utils, torch_optimizer):
        setattr(module, before.__name__, devices)


def install() -> None:
    """Before each step of any optimizer a hook runs: next to nothing once all state is there."""
    _join_fused_devices()
    register_optimizer_step_pre_hook(_before_step)
