"""Each says what to do instead."""

from ..._names import SHARDING, later, later_class

_CLASSES = ("Mesh", "HybridMesh", "ShardingSpec", "XLAShardedTensor", "XLAShard")
_FUNCTIONS = (
    "mark_sharding", "mark_sharding_with_gradients", "clear_sharding", "shard_as", "get_1d_mesh",
    "set_global_mesh", "wrap_if_sharded", "enable_manual_sharding", "disable_manual_sharding",
    "annotate_custom_sharding", "xla_distribute_tensor", "xla_distribute_module", "auto_policy",
    "apply_xla_patch_to_nn_linear", "xla_patched_nn_linear_forward",
    "apply_backward_optimization_barrier",
)  # fmt: skip
globals().update({n: later_class(f"distributed.spmd.{n}", SHARDING) for n in _CLASSES})
globals().update({n: later(f"distributed.spmd.{n}", SHARDING) for n in _FUNCTIONS})


def get_global_mesh() -> None:
    """None: no mesh was set."""
