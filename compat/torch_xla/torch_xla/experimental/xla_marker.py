"""Marks around parts of a graph. Programs hold none: values pass through."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ._library import XLA_LIB, define

__all__ = [
    "BoundaryMetadata", "BoundaryMetadataSerializer", "XLA_LIB", "deserialize_composite_attr",
    "mark_tensor", "mark_tensor_meta", "mark_tensor_xla", "serialize_composite_attr",
]  # fmt: skip


@dataclass
class BoundaryMetadata:
    """One mark."""

    name: str
    pos: int
    id: str
    is_input: bool = True
    attr: dict[str, Any] | None = field(default_factory=dict)


class BoundaryMetadataSerializer(json.JSONEncoder):
    """Marks as JSON."""

    def default(self, o: Any) -> Any:
        return asdict(o) if isinstance(o, BoundaryMetadata) else super().default(o)


def serialize_composite_attr(attr: Any) -> Any:
    """A dict as a tuple of its pairs, which graphs can hold."""
    return None if attr is None else tuple(x for pair in attr.items() for x in pair)


def deserialize_composite_attr(attr: Any) -> Any:
    return None if attr is None else dict(zip(attr[::2], attr[1::2], strict=True))


def mark_tensor(
    x: torch.Tensor, name: str, pos: int, id: str, is_input: bool, attr: Any = None
) -> torch.Tensor:
    """Gives `x`."""
    return x.clone()


mark_tensor_meta = mark_tensor_xla = mark_tensor
define(
    "mark_tensor(Tensor x, str name, int pos, str id, bool is_input, Any? attr=None) -> Tensor",
    mark_tensor,
)
