"""Programs of graphs, as text."""

from typing import Any

import torch

import torch_pjrt


class LoweringContext:
    """The program of tensors that wait for their values."""

    def __init__(self, name: str = "", device: Any = None) -> None:
        self._name, self._graph = name, None

    def build(self, tensors: list[torch.Tensor]) -> None:
        """Of these results."""
        self._graph = torch_pjrt.graph.of(tensors)

    def hlo_text(self) -> str:
        """Its StableHLO."""
        return "" if self._graph is None else self._graph.hlo

    def hlo(self) -> bytes:
        return self.hlo_text().encode()

    hlo_json = hlo_text
