"""Between partition specs, which go by dimension, and DTensor's placements, by axis of the mesh."""

from typing import Any

import torch
from torch.distributed.tensor import DeviceMesh
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.placement_types import Replicate, Shard


def partition_spec_of(dims: int, mesh: Any, placements: Any) -> tuple[Any, ...]:
    """Axes of the mesh by dimension of a tensor with `dims` of them."""
    shape = getattr(mesh, "mesh_shape", None) or tuple(mesh.mesh.shape)
    if len(placements) != len(shape):
        raise ValueError(f"{len(placements)} placements for a mesh of {len(shape)} axes")
    spec: list[Any] = [None] * dims
    for axis, place in enumerate(placements):
        if place.is_partial():
            raise NotImplementedError(f"{place}: a tensor's data is not a sum of its parts")
        if place.is_shard():
            if not -dims <= place.dim < dims:
                raise IndexError(f"{place} of a tensor with {dims} dims")
            spec[place.dim] = axis
    return tuple(spec)


def spec_of(t: Any) -> DTensorSpec:
    """Of an XLAShardedTensor that was marked."""
    grid = torch.as_tensor(t._mesh.ours.device_ids).reshape(t.mesh_shape)
    placements: list[Any] = [Replicate()] * len(t.mesh_shape)
    names = t._mesh.ours.axis_names
    for d, axes in enumerate(t.partition_spec):
        for axis in axes if isinstance(axes, tuple) else (axes,):
            if axis is not None:
                placements[names.index(axis) if isinstance(axis, str) else axis] = Shard(d)
    mesh = DeviceMesh("xla", grid, mesh_dim_names=t._mesh.axis_names)
    return DTensorSpec(mesh, tuple(placements), TensorMeta(t.shape, t.stride(), t.dtype))
