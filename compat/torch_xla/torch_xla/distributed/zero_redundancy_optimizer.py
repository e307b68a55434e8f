"""Sharded optimizer state."""

from .._names import SHARDING, later_class

ZeroRedundancyOptimizer = later_class(
    "distributed.zero_redundancy_optimizer.ZeroRedundancyOptimizer", SHARDING
)
