"""XlaFullyShardedDataParallel: of one process the module as it is."""

from enum import Enum, auto
from math import inf
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ... import _processes
from ..._names import later
from ...utils.checkpoint import chkpt_status
from .utils import (
    BucketizedReduceScatter,
    DummyReduceScatter,
    apply_xla_patch_to_nn_linear,
    dummy_all_gather,
    dummy_all_reduce,
)
from .wrap import recursive_wrap
from .xla_flatten_params_wrapper import XlaFlattenParamsWrapper

__all__ = [
    "BucketizedReduceScatter", "DummyReduceScatter", "FLOAT_DTYPES", "TrainingState",
    "XLA_DISABLE_FUNCTIONALIZATION", "XlaFlattenParamsWrapper", "XlaFullyShardedDataParallel",
    "apply_to_tensors",
    "apply_xla_patch_to_nn_linear", "chkpt_status", "collect_tensors", "dummy_all_gather",
    "dummy_all_reduce", "inf", "recursive_wrap",
]  # fmt: skip

FLOAT_DTYPES = [torch.float32, torch.float16, torch.bfloat16]
XLA_DISABLE_FUNCTIONALIZATION = False
_MANY = (
    "torch_xla.distributed.spmd (SpmdFullyShardedDataParallel) in one process, or "
    "DistributedDataParallel over processes"
)


class TrainingState(Enum):
    """Where a step is."""

    IDLE = auto()
    FORWARD = auto()
    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


def apply_to_tensors(fn: Any, container: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, fn, container)


def collect_tensors(x: Any, out: Any = None) -> Any:
    found = [t for t in pytree.tree_leaves(x) if isinstance(t, torch.Tensor)]
    if out is None:
        return found
    out.extend(found)
    return out


class XlaFullyShardedDataParallel(torch.nn.Module):
    """One process holds the whole module; NotImplementedError where there are more."""

    def __init__(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        if _processes.world() > 1:
            later("distributed.fsdp.XlaFullyShardedDataParallel", _MANY)()
        super().__init__()
        policy, wrapper = kwargs.pop("auto_wrap_policy", None), kwargs.get("auto_wrapper_callable")
        if policy is not None:
            recursive_wrap(
                module, auto_wrap_policy=policy, wrapper_cls=wrapper or type(self),
                ignored_modules=set(), ignored_params=set(), only_wrap_children=True,
            )  # fmt: skip
        self.module = module.to("xla")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, groups: Any = None) -> Any:
        return torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)

    def get_shard_metadata(self) -> dict[str, Any]:
        return {"world_size": 1, "rank": 0, "shard_info": {}, "buffer_info": {}}
