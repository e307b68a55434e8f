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
    """What mark_sharding gives: the tensor under a class with the names below."""

    @staticmethod
    def __new__(cls: Any, elem: torch.Tensor, *args: Any, **kwargs: Any) -> "XLAShardedTensor":
        plain = elem.detach() if elem.is_leaf else elem
        made: XLAShardedTensor = plain.as_subclass(cls)
        return made

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
