"""Meshes, partition specs and what is marked with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import torch

from torch_pjrt import spmd

from ... import _XLAC, _counts
from ..._internal.jax_workarounds import maybe_get_jax, maybe_get_torchax, requires_jax
from ..._names import later
from ._linear import (
    EinsumLinear,
    XLAPatchedLinear,
    apply_xla_patch_to_nn_linear,
    xla_patched_nn_linear_forward,
)
from ._mesh import HybridMesh, Mesh, get_1d_mesh, get_global_mesh, ours, set_global_mesh
from .xla_sharded_tensor import XLAShard, XLAShardedTensor

__all__ = [
    "EinsumLinear", "HybridMesh", "MarkShardingFunction", "Mesh", "PyTreeA", "PyTreeB",
    "ShardingSpec", "ShardingType", "XLAPatchedLinear", "XLAShard", "XLAShardedTensor",
    "annotate_custom_sharding", "aot_mark_sharding_fake", "apply_backward_optimization_barrier",
    "apply_xla_patch_to_nn_linear", "clear_sharding", "disable_manual_sharding",
    "enable_manual_sharding", "get_1d_mesh", "get_global_mesh", "mark_sharding",
    "mark_sharding_with_gradients", "maybe_get_jax", "maybe_get_torchax", "requires_jax",
    "set_global_mesh", "shard_as", "unwrap_sharded_tensor", "wrap_as_sharded_tensor",
    "wrap_if_sharded", "xla_patched_nn_linear_forward",
]  # fmt: skip

PyTreeA = PyTreeB = Any


class ShardingType(IntEnum):
    """How a tensor is placed."""

    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5
    UNKNOWN = 6


def wrap_as_sharded_tensor(
    t: torch.Tensor, mesh_shape: Any = None, partition_spec: Any = None
) -> XLAShardedTensor:
    """Under the class that says how it is cut; marked first where a spec is given."""
    if mesh_shape is not None and partition_spec is not None:
        mesh = Mesh(range(math.prod(mesh_shape)), mesh_shape)
        return mark_sharding(unwrap_sharded_tensor(t), mesh, partition_spec)
    return t if isinstance(t, XLAShardedTensor) else XLAShardedTensor(t)


def unwrap_sharded_tensor(t: torch.Tensor) -> torch.Tensor:
    return t.global_tensor if isinstance(t, XLAShardedTensor) else t


def wrap_if_sharded(x: Any) -> Any:
    """A tensor that is cut or held by many devices under the class that says how."""
    if isinstance(x, torch.Tensor) and x.device.type == "xla" and not _wrapped(x):
        return wrap_as_sharded_tensor(x) if _XLAC._get_xla_sharding_spec(x) else x
    return x


def _wrapped(x: Any) -> bool:
    return isinstance(x, XLAShardedTensor)


def mark_sharding(t: torch.Tensor, mesh: Any, partition_spec: Any) -> XLAShardedTensor:
    """Puts `t` on the mesh in place; gives it under the class that says how.

    A dimension that the mesh does not divide is whole on each device, with a warning. In a function
    that is being traced nothing is marked in place: the result is the value on the mesh.
    """
    plain = unwrap_sharded_tensor(t)
    if _traced(plain):
        return mark_sharding_with_gradients(plain, mesh, partition_spec)
    vars(plain).pop("_xla_cleared", None)
    _XLAC.OpSharding.over(ours(mesh), partition_spec)  # counted, as what follows
    _counts.add("VirtualDeviceUsage")
    spec = _XLAC.even_spec(plain, ours(mesh), partition_spec)
    marked = spmd.mark_sharding(plain, ours(mesh), spec)
    out = t if isinstance(t, XLAShardedTensor) else XLAShardedTensor(marked)
    out._mesh, out._cached_spec = _as_mesh(mesh), None
    out.mesh_shape, out.partition_spec = tuple(out._mesh.mesh_shape), tuple(partition_spec)
    return out


def _as_mesh(mesh: Any) -> Any:
    """With the names of this package, of either kind."""
    if mesh is None or isinstance(mesh, Mesh):
        return mesh or get_global_mesh()
    return Mesh(mesh.device_ids, mesh.mesh_shape, mesh.axis_names)


def annotate_custom_sharding(t: torch.Tensor, mesh: Any, partition_spec: Any) -> XLAShardedTensor:
    """Another sharding for a tensor that has one: here mark_sharding moves it."""
    return mark_sharding(t, mesh, partition_spec)


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Forgets how it is cut."""
    plain = unwrap_sharded_tensor(t)
    spmd.clear_sharding(plain)
    plain._xla_cleared = True  # type: ignore[attr-defined]
    return plain


class MarkShardingFunction(torch.autograd.Function):
    """The value and its gradient on the mesh, as a new tensor."""

    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, mesh: Any, partition_spec: Any) -> torch.Tensor:
        ctx.how = (mesh, partition_spec)
        return _constrained(t, mesh, partition_spec)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _constrained(grads[0], *ctx.how), None, None


def _constrained(t: torch.Tensor, mesh: Any, partition_spec: Any) -> torch.Tensor:
    with torch.no_grad():
        spec = _XLAC.even_spec(t, ours(mesh), partition_spec)
        return spmd.mark_sharding_with_gradients(t, ours(mesh), spec)


def mark_sharding_with_gradients(
    t: torch.Tensor, mesh: Any, partition_spec: Any
) -> XLAShardedTensor:
    plain = unwrap_sharded_tensor(t)
    spec = _XLAC.even_spec(plain, ours(mesh), partition_spec)
    out = spmd.mark_sharding_with_gradients(plain, ours(mesh), spec)
    return out if _traced(plain) else out.as_subclass(XLAShardedTensor)


def _traced(t: torch.Tensor) -> bool:
    """Whether it stands for a tensor of the function that assume_pure or AOTAutograd traces."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(t, FakeTensor | FunctionalTensor)


def aot_mark_sharding_fake(t: torch.Tensor, mesh: str, partition_spec: str) -> torch.Tensor:
    """Of the same sizes."""
    return torch.empty_like(t)


def shard_as(a: Any, b: Any) -> Any:
    """`b` placed as `a` is, and `a`."""
    from torch.utils import _pytree as pytree

    def place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        s = spmd.sharding_of(unwrap_sharded_tensor(x))
        return y if s is None else spmd.mark_sharding_with_gradients(y, s.mesh, s.spec)

    return a, pytree.tree_map(place, a, b)


@dataclass
class ShardingSpec:
    """How inputs of a number of dimensions are cut."""

    mesh: Any
    partition_spec: Any
    minibatch: bool = False
    _count: int = field(init=False, repr=False, default=0)

    def can_apply(self, t: torch.Tensor) -> bool:
        """Whether it has as many dimensions as the spec has entries."""
        return t.dim() == len(self.partition_spec)

    def xla_spec(self, t: torch.Tensor) -> Any:
        return self.mesh.get_op_sharding(self.partition_spec) if self.can_apply(t) else None

    def apply(self, t: torch.Tensor) -> torch.Tensor:
        """Marks it, where it fits."""
        if self.can_apply(t):
            mark_sharding(t, self.mesh, self.partition_spec)
        return t


_MANUAL = "torch_pjrt.manual.region(mesh, in_specs, out_specs): it takes the function of the parts"
enable_manual_sharding = later("distributed.spmd.enable_manual_sharding", _MANUAL)
disable_manual_sharding = later("distributed.spmd.disable_manual_sharding", _MANUAL)
_mark_manual_sharding = later("distributed.spmd._mark_manual_sharding", _MANUAL)


def apply_backward_optimization_barrier(m: torch.nn.Module) -> None:
    """A barrier on the module's gradients behind its backward pass; values do not change."""

    def behind(module: torch.nn.Module, *_: object) -> None:
        _XLAC._xla_optimization_barrier_(
            [p.grad for p in module.parameters() if p.grad is not None]
        )

    m.register_full_backward_hook(behind)
