"""Splash attention's plain form."""

from dataclasses import dataclass
from typing import Any

import torch

from .._internal.jax_workarounds import requires_jax
from ..core.xla_builder import call_jax
from ..distributed.spmd.xla_sharding import Mesh
from .custom_kernel import flash_attention

__all__ = [
    "Mesh", "SplashAttention", "SplashAttentionConfig", "call_jax", "requires_jax",
    "sa_custom_backward_fake", "sa_custom_forward_fake", "splash_attention",
    "splash_attention_jax_wrapper", "tpu_splash_attention_jax_call_wrapper",
]  # fmt: skip

splash_attention_jax_wrapper = tpu_splash_attention_jax_call_wrapper = call_jax


@dataclass(frozen=True)
class SplashAttentionConfig:
    """Settings of the kernel; the plain form needs none."""

    mesh: str = ""
    qkv_partition_spec: Any = None
    segment_ids_partition_spec: Any = None
    attentions_mask: str = "causal"
    attn_logits_soft_cap: float | None = None
    sa_block_q: int = 2048
    sa_block_kv: int = 2048


def splash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    config: Any = None,
    decoder_segment_ids: torch.Tensor | None = None,
    attn_logits_soft_cap: float | None = None,
) -> torch.Tensor:
    """Causal attention, unscaled: [batch, heads, time, width]."""
    repeat = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeat, 1) if repeat > 1 else x for x in (k, v))
    ids = decoder_segment_ids
    if attn_logits_soft_cap is None:
        return flash_attention(q, k, v, True, ids, ids)
    scores = torch.tanh(q @ k.mT / attn_logits_soft_cap) * attn_logits_soft_cap
    blocked = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    if ids is not None:
        blocked = blocked | (ids[:, None, :, None] != ids[:, None, None, :])
    return scores.masked_fill(blocked, float("-inf")).softmax(-1) @ v


class SplashAttention:
    """splash_attention under `apply`; autograd differentiates it."""

    apply = staticmethod(splash_attention)


def sa_custom_forward_fake(q: torch.Tensor, *_: Any, **__: Any) -> Any:
    return torch.empty_like(q)


sa_custom_backward_fake = sa_custom_forward_fake
