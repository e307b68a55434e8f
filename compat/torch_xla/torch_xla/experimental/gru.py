"""torch.nn.GRU: on the device it is one loop of the program already."""

from torch.nn import GRU

from .scan import scan

__all__ = ["GRU", "scan"]

GRU._orig = GRU  # type: ignore[attr-defined]
