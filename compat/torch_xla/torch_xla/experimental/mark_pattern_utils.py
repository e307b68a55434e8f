"""Names for parts of exported programs."""

from typing import Any

import torch

from .xla_marker import mark_tensor


class StableHLOCompositeBuilder:
    """Marks inputs and outputs of a part of a model; values pass through."""

    def __init__(self, name: str, attr: dict[str, Any] | None = None) -> None:
        self.name, self.attr = name, attr

    def _mark(self, tensors: Any, is_input: bool) -> Any:
        marked = [mark_tensor(t, self.name, i, str(id(self)), is_input, self.attr)
                  for i, t in enumerate(tensors)]  # fmt: skip
        return marked[0] if len(marked) == 1 else tuple(marked)

    def mark_inputs(self, *tensors: torch.Tensor) -> Any:
        return self._mark(tensors, True)

    def mark_outputs(self, *tensors: torch.Tensor) -> Any:
        return self._mark(tensors, False)
