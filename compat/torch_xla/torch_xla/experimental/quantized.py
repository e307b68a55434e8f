"""Quantisation as plain arithmetic."""

from typing import Any

import torch

from .. import _XLAC


def xla_quantize_per_tensor(
    input: torch.Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: Any
) -> torch.Tensor:
    return _XLAC._xla_quantize_tensor(input, [scale], [zero_point], quant_min, quant_max, dtype)


def xla_quantize_per_channel(
    input: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, axis: int, quant_min: int,
    quant_max: int, dtype: Any,
) -> torch.Tensor:  # fmt: skip
    return _XLAC._xla_quantize_tensor(
        input, scale.tolist(), zero_point.tolist(), quant_min, quant_max, dtype, axis
    )


def xla_dequantize_per_tensor(
    input: torch.Tensor, scale: float, zero_point: int, *_: Any
) -> torch.Tensor:
    return _XLAC._xla_dequantize_tensor(input, [scale], [zero_point])
