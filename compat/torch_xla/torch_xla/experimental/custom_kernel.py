"""Kernels' plain forms."""

import torch
from torch.nn import functional as F  # noqa: N812

from .._names import later

_PALLAS = "scaled_dot_product_attention, or flash_attention here without segments"


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


paged_attention = later("experimental.custom_kernel.paged_attention", _PALLAS)
ragged_paged_attention = later("experimental.custom_kernel.ragged_paged_attention", _PALLAS)
