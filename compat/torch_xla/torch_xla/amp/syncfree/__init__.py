"""Optimizers that read nothing: PyTorch's own, fused, which take the scaler's found_inf along."""

from typing import Any

import torch


class Adam(torch.optim.Adam):
    """Fused."""

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(params, *args, **{"fused": True, **kwargs})


class AdamW(torch.optim.AdamW):
    """Fused."""

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(params, *args, **{"fused": True, **kwargs})


class SGD(torch.optim.SGD):
    """Fused."""

    def __init__(self, params: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(params, *args, **{"fused": True, **kwargs})
