"""Equal layers as one loop."""

from collections.abc import Iterable
from typing import Any

import torch

import torch_pjrt

from .scan import scan

__all__ = ["scan", "scan_layers"]
_ONE_LAYER_CACHE: dict[Any, Any] = {}


class _Spread(torch.nn.Module):
    """A layer that takes several values, called with a tuple of them."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: Any) -> Any:
        return self.layer(*values)


def scan_layers(
    layers: Iterable[torch.nn.Module],
    input_data: Any,
    partition_fn: Any = None,
    is_layer_pure: bool = False,
) -> Any:
    """`for layer in layers: x = layer(x)`, of tuples `layer(*x)`, as one loop of the program."""
    listed = list(layers)
    if isinstance(input_data, tuple):
        listed = [_Spread(m) for m in listed]
    return torch_pjrt.scan_layers(listed, input_data)
