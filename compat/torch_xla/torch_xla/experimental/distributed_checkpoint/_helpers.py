"""State dicts, flat and nested."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._traverse import set_element

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
    """The parts of a tensor on the host."""

    def __init__(self, t: torch.Tensor) -> None:
        from ...distributed.spmd.xla_sharding import wrap_as_sharded_tensor

        self.shards = wrap_as_sharded_tensor(t).local_shards
        self.global_shape = t.shape


def _sharded_cpu_state_dict(state_dict: dict[str, Any]) -> dict[str, Any]:
    """With its tensors on the host."""
    return {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in state_dict.items()}
