"""torch.distributed.checkpoint of sharded tensors, without gathering.

    from torch.distributed import checkpoint as dcp
    from torch_pjrt.checkpoint import SavePlanner, LoadPlanner

    dcp.save(model.state_dict(), checkpoint_id=folder, planner=SavePlanner())
    dcp.load(model.state_dict(), checkpoint_id=folder, planner=LoadPlanner())

Each part of a tensor is saved as a chunk of its own, read from one device that holds it. Loading
reads the parts that this process's devices hold, whatever mesh they were saved on, and sends each
to its devices. No device ever has a whole tensor, and the host has one that is being read. No
process group is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from . import _C
from .spmd import Sharding, sharding_of

__all__ = ["LoadPlanner", "SavePlanner"]

Place = tuple[int, ...]


class _Parts:
    """A sharded tensor as the planners see it: chunks by where they start.

    `torch.distributed.checkpoint` asks objects that are no tensors by these methods' names.
    """

    def __init__(self, tensor: torch.Tensor, sharding: Sharding) -> None:
        self.tensor = tensor
        self.sizes = torch.Size(sharding.shard_shape)
        self.holders: dict[Place, list[int]] = {}  # partitions, in order
        for partition, (_, index) in enumerate(sharding.boxes):
            start = tuple(i.start for i in index)
            self.holders.setdefault(start, []).append(partition)
        self.read: dict[Place, torch.Tensor] = {}  # what is read so far, on the host
        self.missing: dict[Place, int] = {}  # elements

    def size(self) -> torch.Size:
        return self.tensor.size()

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(torch.Size(at), self.sizes) for at in self.holders]

    def __create_write_items__(self, fqn: str, _object: Any) -> list[WriteItem]:
        properties = TensorProperties(
            dtype=self.tensor.dtype, requires_grad=self.tensor.requires_grad
        )
        return [
            WriteItem(
                index=MetadataIndex(fqn, torch.Size(chunk.offsets), number),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=chunk, properties=properties, size=self.tensor.size()
                ),
            )
            for number, chunk in enumerate(self.__create_chunk_list__())
        ]

    def part(self, at: Place) -> torch.Tensor:
        """What starts there, copied from the first device that holds it."""
        ((_, _, _, _, data),) = _C.local_shards(self.tensor, self.holders[at][0])
        return torch.as_tensor(data)

    def destination(self, at: Place) -> torch.Tensor:
        """Where on the host the part that starts there is put together."""
        if at not in self.read:
            self.read[at] = torch.empty(self.sizes, dtype=self.tensor.dtype)
            self.missing[at] = self.read[at].numel()
        return self.read[at]

    def arrived(self, at: Place, elements: int) -> None:
        """So many of that part's elements are there; the last ones send the tensor on its way."""
        self.missing[at] -= elements
        if len(self.missing) == len(self.holders) and not any(self.missing.values()):
            ordered: list[Any] = [None] * sum(map(len, self.holders.values()))
            for start, partitions in self.holders.items():
                for p in partitions:
                    ordered[p] = self.read[start]
            _C.put_shards(self.tensor, ordered)
            self.read, self.missing = {}, {}


def _as_parts(state: dict[str, Any]) -> dict[str, Any]:
    """`state` with those tensors that are cut over devices as _Parts; computes pending ones."""
    ours = {
        k: x for k, x in state.items() if isinstance(x, torch.Tensor) and x.device.type == "xla"
    }
    states = {k: _C.state(x) for k, x in ours.items()}
    if "ir" in states.values():
        _C.sync(False)

    def seen(name: str, x: Any) -> Any:
        sharding = sharding_of(x) if states.get(name, "view") != "view" else None
        return _Parts(x, sharding) if sharding and not sharding.replicated else x

    return {name: seen(name, x) for name, x in state.items()}


def _place(index: MetadataIndex) -> Place:
    return tuple(index.offset or ())


def _elements(lengths: Iterable[int]) -> int:
    return torch.Size(lengths).numel()


class SavePlanner(DefaultSavePlanner):
    """`torch.distributed.checkpoint.save(..., planner=SavePlanner())`: a chunk a part."""

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        """Called by `save`."""
        super().set_up_planner(state_dict, storage_meta, is_coordinator)
        self.state_dict = _as_parts(self.state_dict)

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The chunk, on the host."""
        found = self.state_dict.get(index.fqn)
        return (
            found.part(_place(index)) if isinstance(found, _Parts) else super().lookup_object(index)
        )


class LoadPlanner(DefaultLoadPlanner):
    """`torch.distributed.checkpoint.load(..., planner=LoadPlanner())`: a tensor as it is cut.

    The tensors given may be on another mesh, or cut otherwise, than those that were saved.
    """

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Any = None, is_coordinator: bool = False
    ) -> None:
        """Called by `load`."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        self.state_dict = _as_parts(self.state_dict)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """What takes a chunk: of a sharded tensor, host memory of its part's shape and dtype."""
        found = self.state_dict.get(index.fqn)
        if isinstance(found, _Parts):
            return found.destination(_place(index))
        return super().lookup_tensor(index)

    def commit_tensor(self, read_item: Any, tensor: torch.Tensor) -> None:
        """A chunk, or a part of one, was read."""
        found = self.state_dict.get(read_item.dest_index.fqn)
        if isinstance(found, _Parts):
            found.arrived(_place(read_item.dest_index), _elements(read_item.lengths))
        else:
            super().commit_tensor(read_item, tensor)
