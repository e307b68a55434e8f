"""How exact float32 products are."""

import logging

import torch

logger = logging.getLogger(__name__)
_WORDS = {"default": "medium", "high": "high", "highest": "highest"}
_WARNING_MESSAGE = (
    "set_mat_mul_precision sets torch.set_float32_matmul_precision: it holds for all devices of "
    "the process, and for what is recorded from now on"
)


def set_mat_mul_precision(precision: str) -> None:
    """One of "default", "high" and "highest"; PyTorch's own setting, of which it warns."""
    if precision not in _WORDS:
        raise ValueError(f"expected one of {', '.join(_WORDS)}, found {precision!r}")
    logger.warning(_WARNING_MESSAGE)
    torch.set_float32_matmul_precision(_WORDS[precision])


def get_mat_mul_precision() -> str:
    back = {v: k for k, v in _WORDS.items()}
    return back[torch.get_float32_matmul_precision()]
