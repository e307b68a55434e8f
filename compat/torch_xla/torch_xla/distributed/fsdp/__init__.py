"""Fully sharded data parallel; checkpoint_module works without."""

from typing import Any

from ..._names import SHARDING, later, later_class
from ...utils.checkpoint import checkpoint

XlaFullyShardedDataParallel = later_class("distributed.fsdp.XlaFullyShardedDataParallel", SHARDING)
consolidate_sharded_state_dicts = later(
    "distributed.fsdp.consolidate_sharded_state_dicts", SHARDING
)
consolidate_sharded_model_checkpoints = later(
    "distributed.fsdp.consolidate_sharded_model_checkpoints", SHARDING
)


def checkpoint_module(module: Any) -> Any:
    """The module, whose forward is checkpointed."""
    forward = module.forward
    module.forward = lambda *args, **kwargs: checkpoint(forward, *args, **kwargs)
    return module
