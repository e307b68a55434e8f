"""Linear layers with integer weights."""

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # the ops quantized_decomposed::...

from ._library import XLA_LIB, define

__all__ = ["XLA_LIB", "XlaQuantizedLinear", "quantized_matmul", "quantized_matmul_xla"]


def _blocks(x: torch.Tensor, w: torch.Tensor, scaler: torch.Tensor, size: int) -> torch.Tensor:
    """Of weights [blocks, size, out] with a scale each [blocks, out]."""
    x = x.reshape(*x.shape[:-1], x.shape[-1] // size, size)
    parts = torch.einsum("...bs,bso->...bo", x, w.to(x.dtype))
    return torch.einsum("...bo,bo->...o", parts, scaler.to(x.dtype))


def quantized_matmul(
    x: torch.Tensor,
    w: torch.Tensor,
    scaler: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    block_size: int = -1,
    int4_weight: bool = False,
    quantize_activation: bool = False,
    **_: Any,
) -> torch.Tensor:
    """Gives x [..., in] times w [out, in] (integers) with a scale a row, or a block."""
    if block_size > 0:
        out = _blocks(x, w, scaler, block_size)
        if zero_point is not None:
            sums = x.reshape(*x.shape[:-1], -1, block_size).sum(-1)
            out = out - torch.einsum("...b,bo->...o", sums, zero_point.to(x.dtype))
        return out
    if quantize_activation:
        out = _integers(x, w, scaler)
    else:
        out = torch.nn.functional.linear(x, w.to(x.dtype)) * scaler
    if zero_point is not None:
        out = out - torch.einsum("...c,z->...z", x, zero_point)
    return out


def _integers(x: torch.Tensor, w: torch.Tensor, scaler: torch.Tensor) -> torch.Tensor:
    """The input as int8 too, with a scale a row."""
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    whole = (x / scale).round().clamp(-128, 127).to(torch.int8)
    sums = torch.einsum("...i,oi->...o", whole.to(torch.int32), w.to(torch.int32))
    return sums.to(x.dtype) * scale * scaler


quantized_matmul_xla = quantized_matmul
define(
    "quantized_matmul(Tensor x, Tensor w, Tensor scaler, Tensor? zero_point=None, "
    "int block_size=-1, bool int4_weight=False, bool quantize_activation=False) -> Tensor",
    quantized_matmul,
)


class XlaQuantizedLinear(torch.nn.Module):
    """A linear layer whose weights load_quantized_weight() brings."""

    def __init__(
        self, input_dim: int, output_dim: int, block_size: int = -1, is_symmetric: bool = True,
        int4_weight: bool = False, quantize_activation: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        blocks = input_dim // block_size if block_size > 0 else 0
        shape = (blocks, block_size, output_dim) if blocks else (output_dim, input_dim)
        scales = (blocks, output_dim) if blocks else (output_dim,)
        self.block_size, self.int4_weight = block_size, int4_weight
        self.quantize_activation = quantize_activation
        self.register_buffer("weight", torch.zeros(shape, dtype=torch.int8))
        self.register_buffer("weight_scaler", torch.zeros(scales))
        self.register_buffer("zero_point", None if is_symmetric else torch.zeros(scales))

    def load_quantized_weight(
        self, weight: Any, weight_scaler: Any, zero_point: Any = None
    ) -> None:
        """Integers, their scales, and what stands for zero."""
        self.weight, self.weight_scaler = weight, weight_scaler
        if zero_point is not None:
            self.zero_point = zero_point

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return quantized_matmul(
            x, self.weight, self.weight_scaler, self.zero_point, self.block_size,
            self.int4_weight, self.quantize_activation,
        )  # fmt: skip
