"""FSDP by sharding."""

from .._names import SHARDING, later_class

SpmdFullyShardedDataParallel = later_class(
    "experimental.spmd_fully_sharded_data_parallel.SpmdFullyShardedDataParallel", SHARDING
)
