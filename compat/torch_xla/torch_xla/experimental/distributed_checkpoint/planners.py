"""Planners: a sharded tensor is read and written as any other."""

from typing import Any

from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner

from ...distributed.spmd.xla_sharded_tensor import XLAShard, XLAShardedTensor
from ._helpers import dedup_tensors, flatten_state_dict, narrow_tensor_by_index, set_element

__all__ = [
    "SPMDLoadPlanner", "SPMDSavePlanner", "XLAShard", "XLAShardedTensor", "dedup_tensors",
    "flatten_state_dict", "narrow_tensor_by_index", "set_element",
]  # fmt: skip


class SPMDSavePlanner(DefaultSavePlanner):
    """Whole tensors, put together on the host."""

    def __init__(self, *_: Any, **kwargs: Any) -> None:
        super().__init__()


class SPMDLoadPlanner(DefaultLoadPlanner):
    """Host bytes go to the devices that held the tensor."""

    def __init__(self, *_: Any, **kwargs: Any) -> None:
        super().__init__()
