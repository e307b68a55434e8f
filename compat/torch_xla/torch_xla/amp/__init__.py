"""Mixed precision: autocast, the scaler, optimizers that need no sync."""

from torch.amp import GradScaler as _GradScaler

from .autocast_mode import autocast

__all__ = ["GradScaler", "autocast"]


class GradScaler(_GradScaler):
    """torch.amp's scaler on the device."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        use_zero_grad: bool = False,
    ) -> None:
        super().__init__("xla", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
