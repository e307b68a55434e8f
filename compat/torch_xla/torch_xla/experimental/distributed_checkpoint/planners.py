"""Planners by torch_xla's names: torch_pjrt's, which save and load a tensor part by part."""

from typing import Any

from torch_pjrt import checkpoint

from ...distributed.spmd.xla_sharded_tensor import XLAShard, XLAShardedTensor
from ._helpers import (
    _CpuShards,
    dedup_tensors,
    flatten_state_dict,
    narrow_tensor_by_index,
    set_element,
)

__all__ = [
    "SPMDLoadPlanner", "SPMDSavePlanner", "XLAShard", "XLAShardedTensor", "dedup_tensors",
    "flatten_state_dict", "narrow_tensor_by_index", "set_element",
]  # fmt: skip


def _cut(x: Any) -> bool:
    return isinstance(x, _CpuShards) or hasattr(x, "__create_chunk_list__")


def _sharded(state: dict[str, Any]) -> dict[str, Any]:
    """What is cut over devices, or was before it came to the host."""
    return {
        name: x if isinstance(x, _CpuShards) else XLAShardedTensor(x.tensor)
        for name, x in state.items()
        if _cut(x)
    }


class _Separated:
    """The state dict of a planner, flat and in two."""

    state_dict: dict[str, Any]

    @property
    def sharded_state_dict(self) -> dict[str, Any]:
        """Tensors that are cut, by name."""
        return _sharded(self.state_dict)

    @property
    def unsharded_state_dict(self) -> dict[str, Any]:
        """All else."""
        return {name: x for name, x in self.state_dict.items() if not _cut(x)}


class SPMDSavePlanner(_Separated, checkpoint.SavePlanner):
    """A chunk a part, each read from one device that holds it."""

    def __init__(self, *_: Any, **kwargs: Any) -> None:
        super().__init__()

    def set_up_planner(
        self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        """Called by `save`; torch_xla has `is_coordinator` as the second argument."""
        if isinstance(storage_meta, bool):
            storage_meta, is_coordinator = None, storage_meta
        super().set_up_planner(state_dict, storage_meta, is_coordinator)

    def lookup_object(self, index: Any) -> Any:
        """The chunk, on the host."""
        found = self.state_dict.get(index.fqn)
        return found.part(index) if isinstance(found, _CpuShards) else super().lookup_object(index)


class SPMDLoadPlanner(_Separated, checkpoint.LoadPlanner):
    """A tensor as it is cut: chunks go to the devices that hold them."""

    def __init__(self, *_: Any, **kwargs: Any) -> None:
        super().__init__()
