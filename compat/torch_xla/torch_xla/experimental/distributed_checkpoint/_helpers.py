"""State dicts, flat and nested."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.utils import _pytree as pytree

from ... import _XLAC

__all__ = ["dedup_tensors", "flatten_state_dict", "narrow_tensor_by_index", "set_element"]


def dedup_tensors(all_plans: Any) -> Any:
    """Each tensor in one plan."""
    from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans

    return dedup_save_plans(all_plans)


def narrow_tensor_by_index(
    tensor: torch.Tensor, offsets: Sequence[int], sizes: Sequence[int]
) -> torch.Tensor:
    """The part at `offsets` of `sizes`, a view."""
    for d, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        if size < tensor.shape[d]:
            tensor = tensor.narrow(d, offset, size)
    return tensor


def _is_sharded_tensor(x: Any) -> bool:
    """Whether it is cut."""
    if not isinstance(x, torch.Tensor):
        return False
    return _XLAC._get_xla_sharding_type(x) not in (None, 0)


class _CpuShards:
    """The parts of a tensor on the host; a checkpoint takes them as it does those on devices."""

    def __init__(self, t: torch.Tensor) -> None:
        from ...distributed.spmd.xla_sharding import wrap_as_sharded_tensor

        self.shards = wrap_as_sharded_tensor(t).local_shards
        self.global_shape, self._dtype = t.shape, t.dtype

    def __create_write_items__(self, fqn: str, _object: Any) -> list[WriteItem]:
        properties, seen = TensorProperties(dtype=self._dtype), set()
        items = []
        for number, shard in enumerate(self.shards):
            at = torch.Size(i.start for i in shard.indices)
            if at not in seen:  # the first of the devices that hold it
                seen.add(at)
                chunk = ChunkStorageMetadata(at, shard.data.shape)
                data = TensorWriteData(chunk=chunk, properties=properties, size=self.global_shape)
                index = MetadataIndex(fqn, at, number)
                items.append(WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data))
        return items

    def part(self, index: MetadataIndex) -> torch.Tensor:
        """What starts at the index's offset."""
        at = tuple(index.offset or ())
        return next(s.data for s in self.shards if tuple(i.start for i in s.indices) == at)


def _sharded_cpu_state_dict(state_dict: dict[str, Any]) -> dict[str, Any]:
    """With its tensors on the host: those that are cut as _CpuShards, never put together."""

    def moved(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return _CpuShards(x) if _is_sharded_tensor(x) else x.cpu()

    found: dict[str, Any] = pytree.tree_map(moved, state_dict)
    return found
