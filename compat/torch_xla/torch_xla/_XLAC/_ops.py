"""Ops under private names."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_pjrt._barrier import barrier

__all__ = [
    "_xla_adam_optimizer_step_", "_xla_all_gather", "_xla_all_reduce", "_xla_all_reduce_inplace",
    "_xla_all_to_all", "_xla_collective_permute", "_xla_dequantize_tensor", "_xla_dot_general",
    "_xla_mark_dynamic", "_xla_optimization_barrier_", "_xla_quantize_tensor", "_xla_recv",
    "_xla_reduce_scatter", "_xla_send", "_xla_sgd_optimizer_step_", "_xla_user_computation",
]  # fmt: skip


def _xla_dot_general(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    dim_numbers: Any,
    precision_config: Any = None,
    preferred_element_type: torch.dtype | None = None,
) -> torch.Tensor:
    """XLA's DotGeneral: ((contracting, contracting), (batch, batch)) of both."""
    if lhs.device.type != "xla" or rhs.device.type != "xla":
        raise RuntimeError("_xla_dot_general: expected both tensors on device xla, "
                           f"found {lhs.device} and {rhs.device}")  # fmt: skip
    (left_c, right_c), batch = dim_numbers
    left_b, right_b = batch or ((), ())
    left_c, left_b = ([d % lhs.dim() for d in dims] for dims in (left_c, left_b))
    right_c, right_b = ([d % rhs.dim() for d in dims] for dims in (right_c, right_b))
    names = iter("abcdefghijklmnopqrstuvwxyz")
    left: list[str] = [next(names) for _ in range(lhs.dim())]
    right: list[str] = [next(names) for _ in range(rhs.dim())]
    for a, b in (*zip(left_c, right_c, strict=True), *zip(left_b, right_b, strict=True)):
        right[b] = left[a]
    out = [left[d] for d in left_b]
    out += [n for d, n in enumerate(left) if d not in (*left_c, *left_b)]
    out += [n for d, n in enumerate(right) if d not in (*right_c, *right_b)]
    wide = preferred_element_type or lhs.dtype
    sides = [x.to(wide) for x in (lhs, rhs)]
    return torch.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", *sides)


def _xla_user_computation(
    name: str, tensors: Sequence[torch.Tensor], computation: Any
) -> list[torch.Tensor]:
    """`computation` of torch_xla.core.xla_builder.create_computation."""
    from ..core import xla_builder as xb

    return list(xb.run(computation.fn, tensors, {}))


def _xla_mark_dynamic(t: torch.Tensor, dim: int) -> None:
    """A dimension of unknown size: programs here have sizes."""
    from .._names import later

    if not -t.dim() <= dim < t.dim():
        raise RuntimeError(f"_xla_mark_dynamic: dim {dim} of a tensor of {t.dim()} dims")
    later("_XLAC._xla_mark_dynamic", "static shapes, or torch.export with Dim")()


def _xla_optimization_barrier_(tensors: Any) -> None:
    """What is computed of one of them waits for all of them; values do not change."""
    given = [t.detach() for t in tensors]
    for t, value in zip(given, barrier(given), strict=True):
        t.copy_(value)


def _xla_quantize_tensor(
    t: torch.Tensor,
    scale: Sequence[float],
    zero_point: Sequence[int],
    quant_min: int,
    quant_max: int,
    dtype: Any,
    axis: int = -1,
) -> torch.Tensor:
    """round(t / scale) + zero_point between the limits, as integers."""
    s, z = (_along(v, t, axis) for v in (scale, zero_point))
    kind = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype))
    return ((t / s).round() + z).clamp(quant_min, quant_max).to(kind)


def _xla_dequantize_tensor(
    t: torch.Tensor, scale: Sequence[float], zero_point: Sequence[int], *_: Any, axis: int = -1
) -> torch.Tensor:
    s, z = (_along(v, t, axis) for v in (scale, zero_point))
    return (t.to(torch.float32) - z) * s


def _along(values: Sequence[float], t: torch.Tensor, axis: int) -> torch.Tensor:
    made = torch.as_tensor(values, dtype=torch.float32, device=t.device)
    return made.reshape([-1 if d == axis % max(t.dim(), 1) else 1 for d in range(t.dim())])


def _xla_adam_optimizer_step_(
    found_inf: torch.Tensor, step: torch.Tensor, param: torch.Tensor, grad: torch.Tensor,
    exp_avg: torch.Tensor, exp_avg_sq: torch.Tensor, max_exp_avg_sq: torch.Tensor,
    beta1: float, beta2: float, lr: float, weight_decay: float, eps: float, amsgrad: bool,
    maximize: bool, use_adamw: bool,
) -> None:  # fmt: skip
    """PyTorch's fused step."""
    fused = torch._fused_adamw_ if use_adamw else torch._fused_adam_
    fused(
        [param], [grad], [exp_avg], [exp_avg_sq], [max_exp_avg_sq] if amsgrad else [], [step],
        lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, eps=eps, amsgrad=amsgrad,
        maximize=maximize, found_inf=found_inf,
    )  # fmt: skip


def _xla_sgd_optimizer_step_(
    found_inf: torch.Tensor, step: torch.Tensor, param: torch.Tensor, buf: torch.Tensor,
    grad: torch.Tensor, weight_decay: float, momentum: float, lr: float, dampening: float,
    nesterov: bool, maximize: bool,
) -> None:  # fmt: skip
    """PyTorch's fused step."""
    torch._fused_sgd_(
        [param], [grad], [buf] if momentum else [], weight_decay=weight_decay, momentum=momentum,
        lr=lr, dampening=dampening, nesterov=nesterov, maximize=maximize, is_first_step=False,
        found_inf=found_inf,
    )  # fmt: skip


# ---- collectives ----------------------------------------------------------------------------


def _xla_all_reduce(reduce_type: str, t: torch.Tensor, scale: float, groups: Any, *_: Any) -> Any:
    from ..core import _collectives

    return _collectives.all_reduce(reduce_type, t, scale, groups)


_xla_all_reduce_inplace = _xla_all_reduce


def _xla_all_gather(t: torch.Tensor, dim: int, shard_count: int, groups: Any, *_: Any) -> Any:
    from ..core import _collectives

    return _collectives.all_gather(t, dim, groups)


def _xla_reduce_scatter(
    reduce_type: str, t: torch.Tensor, token: Any, scale: float, scatter_dim: int,
    shard_count: int, groups: Any, *_: Any,
) -> Any:  # fmt: skip
    from ..core import _collectives

    return _collectives.reduce_scatter(reduce_type, t, scale, scatter_dim, shard_count, groups)


def _xla_all_to_all(
    t: torch.Tensor, token: Any, split_dim: int, concat_dim: int, count: int, groups: Any, *_: Any
) -> Any:
    from ..core import _collectives

    return _collectives.all_to_all(t, split_dim, concat_dim, count, groups)


def _xla_collective_permute(t: torch.Tensor, token: Any, pairs: Any) -> Any:
    from ..core import _collectives

    return _collectives.collective_permute(t, pairs)


def _xla_send(t: torch.Tensor, token: Any, channel_id: int) -> Any:
    from ..core import _collectives

    return _collectives.send(t, channel_id)


def _xla_recv(output: torch.Tensor, token: Any, channel_id: int) -> Any:
    from ..core import _collectives

    return _collectives.recv(output, channel_id)
