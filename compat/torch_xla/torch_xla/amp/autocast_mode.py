"""autocast of the device."""

from typing import Any

import torch


class autocast(torch.autocast):  # noqa: N801 - its name
    """`with autocast(device):`, as torch.autocast("xla")."""

    def __init__(
        self,
        device: Any = None,
        enabled: bool = True,
        dtype: torch.dtype = torch.bfloat16,
        cache_enabled: bool | None = None,
    ) -> None:
        super().__init__("xla", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
