"""Fully sharded data parallel."""

from .state_dict_utils import (
    consolidate_sharded_model_checkpoints,
    consolidate_sharded_state_dicts,
)
from .utils import checkpoint_module
from .xla_fully_sharded_data_parallel import XlaFullyShardedDataParallel

__all__ = [
    "XlaFullyShardedDataParallel", "checkpoint_module", "consolidate_sharded_model_checkpoints",
    "consolidate_sharded_state_dicts",
]  # fmt: skip
