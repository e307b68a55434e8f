"""Recorded graphs, to look at: the last one that was run, or what some tensors are waiting for."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from . import _C

__all__ = ["Graph", "last", "of"]


@dataclass(frozen=True)
class Graph:
    """One graph. `text` has a line a node, `hlo` is the StableHLO module, `dot` is for Graphviz."""

    nodes: int
    text: str
    hlo: str
    dot: str
    key: str

    def __str__(self) -> str:
        return self.text


def last() -> Graph | None:
    """The graph of the last sync; None before the first."""
    found = _C.last_graph()
    return Graph(*found) if found else None


def of(tensors: torch.Tensor | Sequence[torch.Tensor]) -> Graph:
    """What would run to compute these tensors; nothing is run."""
    listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    return Graph(*_C.graph_of(listed))
