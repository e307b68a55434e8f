"""How exact float32 products are."""

import torch

_WORDS = {"default": "medium", "high": "high", "highest": "highest"}


def set_mat_mul_precision(precision: str) -> None:
    """One of "default", "high" and "highest"; PyTorch's own setting."""
    if precision not in _WORDS:
        raise ValueError(f"expected one of {', '.join(_WORDS)}, found {precision!r}")
    torch.set_float32_matmul_precision(_WORDS[precision])


def get_mat_mul_precision() -> str:
    back = {v: k for k, v in _WORDS.items()}
    return back[torch.get_float32_matmul_precision()]
