"""Sharding by annotation, of torch_pjrt.spmd."""

from . import xla_sharding
from .api import auto_policy, xla_distribute_module, xla_distribute_tensor
from .xla_sharded_tensor import XLAShard, XLAShardedTensor
from .xla_sharding import (
    HybridMesh,
    MarkShardingFunction,
    Mesh,
    ShardingSpec,
    ShardingType,
    XLAPatchedLinear,
    _mark_manual_sharding,
    annotate_custom_sharding,
    apply_backward_optimization_barrier,
    apply_xla_patch_to_nn_linear,
    clear_sharding,
    disable_manual_sharding,
    enable_manual_sharding,
    get_1d_mesh,
    get_global_mesh,
    mark_sharding,
    mark_sharding_with_gradients,
    set_global_mesh,
    shard_as,
    wrap_if_sharded,
    xla_patched_nn_linear_forward,
)

__all__ = [
    "HybridMesh", "MarkShardingFunction", "Mesh", "ShardingSpec", "ShardingType",
    "XLAPatchedLinear", "XLAShard", "XLAShardedTensor", "_mark_manual_sharding",
    "annotate_custom_sharding", "apply_backward_optimization_barrier",
    "apply_xla_patch_to_nn_linear", "auto_policy", "clear_sharding", "disable_manual_sharding",
    "enable_manual_sharding", "get_1d_mesh", "get_global_mesh", "mark_sharding",
    "mark_sharding_with_gradients", "set_global_mesh", "shard_as", "wrap_if_sharded",
    "xla_distribute_module", "xla_distribute_tensor", "xla_patched_nn_linear_forward",
    "xla_sharding",
]  # fmt: skip
