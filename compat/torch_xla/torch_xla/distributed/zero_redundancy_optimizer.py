"""Optimizer state that each process holds a part of."""

from typing import Any

import torch

from .. import _processes
from ..core import _collectives as c


class ZeroRedundancyOptimizer(torch.optim.Optimizer):
    """Each process steps its share of the parameters and gives the new values to the others."""

    def __init__(
        self,
        params: Any,
        optimizer_class: type[torch.optim.Optimizer],
        optimizer_dtype: torch.dtype | None = None,
        grad_clipping: bool = True,
        max_norm: float | None = None,
        pin_layout: bool = True,
        sharding_groups: Any = None,
        grad_norm_groups: Any = None,
        lazy_init: bool = False,
        **defaults: Any,
    ) -> None:
        super().__init__(params, defaults)
        self._clip = (max_norm or 1.0) if grad_clipping else None
        self._groups = sharding_groups
        own = [{**g, "params": self._own(g["params"])} for g in self.param_groups]
        self.base_optimizer = optimizer_class([g for g in own if g["params"]], **defaults)

    def _owner(self, index: int) -> int:
        return index % _processes.world()

    def _own(self, params: list[torch.Tensor]) -> list[torch.Tensor]:
        return [p for i, p in enumerate(params) if self._owner(i) == _processes.rank()]

    @torch.no_grad()
    def step(self, closure: Any = None, **kwargs: Any) -> Any:
        """Reduces the gradients, clips them, steps the own share, spreads it."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        c.reduce_gradients(self, groups=self._groups)
        params = [p for g in self.param_groups for p in g["params"]]
        if self._clip is not None:
            torch.nn.utils.clip_grad_norm_(params, self._clip)
        self.base_optimizer.step(**kwargs)
        if _processes.world() > 1:
            for g in self.param_groups:
                for i, p in enumerate(g["params"]):
                    c.collective_broadcast([p], self._owner(i))
        return loss
