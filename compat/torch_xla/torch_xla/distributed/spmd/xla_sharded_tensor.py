"""A tensor that says how it is cut: a view of the one that was marked."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torch_pjrt import spmd

from ... import _XLAC


@dataclass
class XLAShard:
    """What one device holds: `data` is on the host, `indices` say which part (... for all)."""

    data: torch.Tensor
    indices: Any
    shard_device: str
    replica_id: int

    @property
    def unpadded_data(self) -> torch.Tensor:
        """Parts are never padded here."""
        return self.data

    @unpadded_data.setter
    def unpadded_data(self, t: torch.Tensor) -> None:
        self.data.copy_(t)


class XLAShardedTensor(torch.Tensor):
    """What mark_sharding gives: the tensor under a class with the names below.

    `mesh_shape` and `partition_spec` are what it was marked with; None of a result of an op.
    """

    mesh_shape: tuple[int, ...] | None = None
    partition_spec: tuple[Any, ...] | None = None
    _cached_spec: Any = None
    _mesh: Any = None

    @staticmethod
    def __new__(
        cls: Any, elem: torch.Tensor, *args: Any, requires_grad: bool = False, **kwargs: Any
    ) -> "XLAShardedTensor":
        plain = elem.detach() if elem.is_leaf else elem
        made: XLAShardedTensor = plain.as_subclass(cls)
        return made.requires_grad_() if requires_grad else made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @property
    def global_tensor(self) -> torch.Tensor:
        """The same tensor as a plain one."""
        return self.as_subclass(torch.Tensor)

    @property
    def local_shards(self) -> list[XLAShard]:
        """What each device holds."""
        whole = spmd.sharding_of(self.global_tensor)
        return [
            XLAShard(
                s.data,
                ... if whole is None or whole.replicated else [_step(i) for i in s.index],
                f"{_XLAC._xla_device_kind()}:{s.device}",
                s.device if whole is None or whole.replicated else s.replica,
            )
            for s in spmd.local_shards(self.global_tensor)
        ]

    def load_local_shards_(self, shards: list[XLAShard]) -> None:
        """Puts these parts in place of what is there."""
        _XLAC._load_local_shards(self.global_tensor, [s.data for s in shards], shards)

    @property
    def sharding_spec(self) -> str:
        return _XLAC._get_xla_sharding_spec(self.global_tensor)

    @property
    def sharding_type(self) -> Any:
        from .xla_sharding import ShardingType

        found = _XLAC._get_xla_sharding_type(self.global_tensor)
        return None if found is None else ShardingType(found)

    def invalidate_spec_cache(self) -> None:
        """The next _spec is made anew."""
        self._cached_spec = None

    @property
    def _spec(self) -> Any:
        """As DTensor has it: mesh, placements, sizes."""
        if self.mesh_shape is None or self.partition_spec is None:
            raise ValueError(
                "Placements not available: XLAShardedTensor requires mesh_shape and partition_spec "
                "to be set. Use mark_sharding() to properly initialize sharding information."
            )
        if self._cached_spec is None:
            from ._placements import spec_of

            self._cached_spec = spec_of(self)
        return self._cached_spec

    @property
    def placements(self) -> Any:
        """Shard or Replicate for each axis of the mesh."""
        return self._spec.placements

    def redistribute(
        self, device_mesh: Any = None, placements: Any = None, *, async_op: bool = False
    ) -> "XLAShardedTensor":
        """A copy of it, placed so on the mesh."""
        from ._placements import partition_spec_of
        from .xla_sharding import mark_sharding

        mesh = self._mesh if device_mesh is None else device_mesh
        spec = partition_spec_of(self.dim(), mesh, placements)
        return mark_sharding(self.global_tensor.clone(), mesh, spec)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"XLAShardedTensor({self.global_tensor!r})"

    __str__ = __repr__


def _step(s: slice) -> slice:
    return slice(s.start, s.stop, 1)


@contextlib.contextmanager
def no_dispatch() -> Iterator[None]:
    """Without the class's own rules."""
    with torch._C.DisableTorchFunctionSubclass():
        yield
