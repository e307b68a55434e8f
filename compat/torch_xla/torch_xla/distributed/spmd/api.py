"""DTensor's doors."""

import logging
from collections.abc import Callable
from typing import Any

import torch

import torch_pjrt

from ... import _XLAC
from .xla_sharded_tensor import XLAShardedTensor
from .xla_sharding import Mesh, ShardingType, mark_sharding

__all__ = [
    "Mesh", "ShardingType", "XLAShardedTensor", "auto_policy", "convert_to_xla_mesh",
    "convert_to_xla_partition_spec", "log", "mark_sharding", "with_xla", "xla_distribute_module",
    "xla_distribute_tensor",
]  # fmt: skip
log = logging.getLogger(__name__)


def auto_policy(mod_name: str, mod: torch.nn.Module, mesh: Any) -> None:
    """For distribute_module: marks nothing, the compiler places what is not marked."""
    _XLAC._xla_set_auto_sharding()


def with_xla(func: Callable[..., Any]) -> Callable[..., Any]:
    """The device is there from the import on."""
    return func


def convert_to_xla_mesh(dt_mesh: Any) -> Mesh:
    """DTensor's mesh, with its names."""
    assert dt_mesh.size() == len(torch_pjrt.devices()), (
        f"the mesh has {dt_mesh.size()} devices, the client {len(torch_pjrt.devices())}"
    )
    return Mesh(dt_mesh.mesh.cpu().numpy(), tuple(dt_mesh.mesh.shape), dt_mesh.mesh_dim_names)


def convert_to_xla_partition_spec(tensor: torch.Tensor, placements: Any) -> tuple[Any, ...]:
    """Axes of the mesh by dimension of the tensor."""
    spec: list[Any] = [None] * tensor.dim()
    for axis, place in enumerate(placements):
        if place.is_shard():
            assert spec[place.dim] is None, f"dim {place.dim} is cut by two axes of the mesh"
            spec[place.dim] = axis
        elif not place.is_replicate():
            raise ValueError(f"{place} is not a placement of data: expected Shard or Replicate")
    return tuple(spec)


def xla_distribute_tensor(tensor: Any, device_mesh: Any, placements: Any = None) -> Any:
    """`tensor` on the mesh; Replicate where no placements are given."""
    from torch.distributed.tensor.placement_types import Replicate

    mesh = convert_to_xla_mesh(device_mesh)
    spec = convert_to_xla_partition_spec(tensor, placements or [Replicate()] * device_mesh.ndim)
    return mark_sharding(tensor, mesh, spec)


def xla_distribute_module(
    module: torch.nn.Module,
    device_mesh: Any = None,
    partition_fn: Any = None,
    input_fn: Any = None,
    output_fn: Any = None,
) -> torch.nn.Module:
    """The module with `partition_fn(name, submodule, mesh)` of each part, and its hooks."""
    module = module.to("xla")
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, device_mesh)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda _, inputs: input_fn(inputs, device_mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda _, inputs, out: output_fn(out, device_mesh))
    return module
