"""Kernels' plain forms."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from .._internal.jax_workarounds import jax_import_guard, requires_jax
from .._names import later
from ..distributed.spmd.xla_sharding import Mesh
from ._library import XLA_LIB

__all__ = [
    "DEFAULT_MASK_VALUE", "FlashAttention", "GMM", "Mesh", "XLA_LIB", "flash_attention",
    "flash_attention_non_xla", "flash_attention_xla", "generate_ctx_need_grad", "gmm",
    "gmm_backward", "gmm_non_xla", "gmm_xla", "jax_import_guard", "non_xla_attetion",
    "repeat_with_fixed_output_size", "requires_jax", "safe_empty_like", "tgmm",
]  # fmt: skip

DEFAULT_MASK_VALUE = -0.7 * float(torch.finfo(torch.float32).max)
_PALLAS = "torch.nn.functional.scaled_dot_product_attention over the gathered keys and values"
_JAX = "a function of PyTorch's: kernels of jax are not run"


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    q_segment_ids: torch.Tensor | None = None,
    kv_segment_ids: torch.Tensor | None = None,
    sm_scale: float = 1.0,
    *,
    ab: torch.Tensor | None = None,
    partition_spec: object = None,
    mesh: object = None,
    **_: Any,
) -> torch.Tensor:
    """[batch, heads, time, width] as PyTorch's attention has it; `ab` adds to the scores."""
    mask = ab
    if q_segment_ids is not None and kv_segment_ids is not None:
        same = q_segment_ids[:, None, :, None] == kv_segment_ids[:, None, None, :]
        part = torch.where(same, 0.0, float("-inf")).to(q.dtype)
        mask = part if mask is None else mask + part
    if causal and mask is not None:
        later_on = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        mask, causal = mask.masked_fill(later_on, float("-inf")), False
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=sm_scale)


flash_attention_xla = flash_attention_non_xla = flash_attention


class FlashAttention:
    """flash_attention under `apply`; autograd differentiates it."""

    apply = staticmethod(flash_attention)


def non_xla_attetion(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
    return (q @ k.mT).softmax(-1) @ v


def _rows_of(group_sizes: torch.Tensor, rows: int, group: int) -> torch.Tensor:
    """Which rows belong to a group, [rows, 1]."""
    ends = group_sizes.cumsum(0)
    row = torch.arange(rows, device=group_sizes.device)
    return ((row < ends[group]) & (row >= ends[group] - group_sizes[group])).unsqueeze(1)


def gmm(
    lhs: torch.Tensor, rhs: torch.Tensor, group_sizes: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    """Rows of lhs [m, k], group after group, times rhs[group] [k, n]: [m, n]."""
    parts = [
        torch.where(_rows_of(group_sizes, lhs.shape[0], g), lhs, 0) @ rhs[g]
        for g in range(rhs.shape[0])
    ]
    return torch.stack(parts).sum(0)


def tgmm(
    lhs: torch.Tensor, rhs: torch.Tensor, group_sizes: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    """Gives lhs [k, m] times rhs [m, n], over the rows of each group: [groups, k, n]."""
    count = group_sizes.shape[0]
    return torch.stack(
        [lhs @ torch.where(_rows_of(group_sizes, rhs.shape[0], g), rhs, 0) for g in range(count)]
    )


gmm_xla = gmm_non_xla = gmm


def gmm_backward(
    grad: torch.Tensor, lhs: torch.Tensor, rhs: torch.Tensor, group_sizes: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of gmm's lhs and rhs."""
    return gmm(grad, rhs.mT, group_sizes), tgmm(lhs.mT, grad, group_sizes)


class GMM:
    """gmm under `apply`; autograd differentiates it."""

    apply = staticmethod(gmm)


def repeat_with_fixed_output_size(
    input: torch.Tensor, repeats: torch.Tensor, total_repeat_length: int
) -> torch.Tensor:
    """torch.repeat_interleave, cut to that length, or filled up with the last value."""
    ends = repeats.cumsum(0)
    at = torch.arange(total_repeat_length, device=input.device)
    index = torch.searchsorted(ends, at, right=True).clamp(max=input.shape[0] - 1)
    return input.index_select(0, index)


def generate_ctx_need_grad(*args: Any) -> tuple[bool, ...]:
    return tuple(isinstance(a, torch.Tensor) and a.requires_grad for a in args)


def safe_empty_like(t: torch.Tensor | None) -> torch.Tensor | None:
    return None if t is None else torch.empty_like(t)


_AS_IT_IS = (
    "multi_queries_paged_attention", "paged_attention", "ragged_paged_attention",
    "quantized_matmul_int8",
)  # fmt: skip
_OF_JAX = (
    "convert_torch_dtype_to_jax", "fa_custom_backward_fake", "fa_custom_forward_fake",
    "make_kernel_from_pallas", "non_xla_ragged_paged_attention", "to_jax_shape_dtype_struct",
    "trace_pallas", "trace_pallas_arg_to_payload",
)  # fmt: skip


def _refuse(name: str, instead: str) -> Callable[..., Any]:
    return later(f"experimental.custom_kernel.{name}", instead)


globals().update(
    {f"{n}{end}": _refuse(n, _PALLAS) for n in _AS_IT_IS for end in ("", "_xla", "_non_xla")}
)
globals().update({n: _refuse(n, _JAX) for n in _OF_JAX})
