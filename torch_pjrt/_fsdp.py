"""`torch.distributed.fsdp.fully_shard` over a mesh of devices of one process: FSDP by annotation.

torch's function checks, gathers what a module owns and makes the module an FSDPModule; two of the
steps in between are ours. Parameters are cut over the mesh and stay the same Parameter objects; the
compiler gathers them where a layer needs them and scatters their gradients. The inputs of the
outermost module are cut along their first dimension, as FSDP's ranks each have a part of a batch.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.utils._pytree import tree_map

from . import spmd
from ._barrier import fence
from ._device_mesh import is_view, split_count, view_of
from ._view_tensor import constrained, plain

__all__ = ["adjust"]

_forward = threading.local()  # .depth: sharded modules that run, the outermost first


@dataclass(frozen=True)
class _View:
    """What torch calls a mesh info: over which dims of the mesh parameters are cut, and copied."""

    mesh: Any
    shard: tuple[int, ...]
    replicate: tuple[int, ...]


def _view(mesh: Any, dims: Any) -> _View:
    if dims is not None:
        at = mesh._get_mesh_dim_by_name
        return _View(mesh, tuple(map(at, dims.shard_names)), tuple(map(at, dims.replicate_names)))
    return _View(mesh, (0,), ()) if mesh.ndim == 1 else _View(mesh, (1,), (0,))


def _spec(p: torch.Tensor, view: _View, wanted: int | None) -> tuple[Any, ...]:
    """What cuts the parameter already, and the shard dims where they fit."""
    grid, dims = view_of(view.mesh)
    own = [axis for d in view.shard for axis in dims[d]]
    has = spmd.sharding_of(p, grid) if p.device.type == "xla" else None
    kept = has.spec if has is not None and has.mesh == grid else (None,) * p.dim()
    lists = [[a for a in names if a not in own] for names in spmd._names(grid, kept)]

    def fits(d: int) -> bool:
        parts = split_count(grid, (*lists[d], *own))
        return p.shape[d] > 0 and p.shape[d] % parts == 0

    if wanted is not None and not fits(wanted % p.dim()):
        parts = split_count(grid, (*lists[wanted % p.dim()], *own))
        raise ValueError(
            f"fully_shard: Shard({wanted}) of a parameter of shape {tuple(p.shape)}: "
            f"{p.shape[wanted]} is not divisible by {parts}\n  try: None, or another dim"
        )
    order = [wanted % p.dim()] if wanted is not None else _by_size(p)
    for d in order:
        if fits(d):
            lists[d] += own
            break
    return tuple(tuple(names) or None for names in lists)


def _by_size(p: torch.Tensor) -> list[int]:
    """The first dim, then the largest ones."""
    return sorted(range(p.dim()), key=lambda d: (d != 0, -p.shape[d]))


def _wanted(p: Any, placement_fn: Any) -> int | None:
    found = placement_fn(p) if placement_fn else None
    if found is None or isinstance(getattr(found, "dim", None), int):
        return None if found is None else int(found.dim)
    raise NotImplementedError(
        f"fully_shard: shard_placement_fn gave {found!r}; a mesh of its own for a parameter is not "
        "built\n  try: torch_pjrt.spmd.mark_sharding of that parameter, before fully_shard"
    )


# ---- forward ------------------------------------------------------------------------------------


class _Forward:
    """The hooks of one call: the batch is cut, casts are made as the policy says."""

    def __init__(self, view: _View, owned: list[tuple[Any, str]], policy: Any) -> None:
        self.view, self.owned, self.policy = view, owned, policy

    @_disable_dynamo
    def before(self, module: Any, args: Any, kwargs: Any) -> Any:
        if getattr(_forward, "depth", 0) == 0:
            args, kwargs = tree_map(self._cut, (args, kwargs))
        _forward.depth = getattr(_forward, "depth", 0) + 1
        dtype = self.policy.param_dtype
        if dtype is not None:
            for m, name in self.owned:  # found before the Parameter, until the call is over
                m.__dict__[name] = m._parameters[name].to(dtype)
            if self.policy.cast_forward_inputs:
                args, kwargs = tree_map(functools.partial(_cast, dtype=dtype), (args, kwargs))
        return args, kwargs

    @_disable_dynamo
    def after(self, module: Any, args: Any, output: Any) -> Any:
        _forward.depth = max(0, getattr(_forward, "depth", 0) - 1)
        for m, name in self.owned:
            m.__dict__.pop(name, None)
        if self.policy.output_dtype is None or output is None:
            return output
        return tree_map(functools.partial(_cast, dtype=self.policy.output_dtype), output)

    def _cut(self, t: Any) -> Any:
        """A batch that is not on the mesh yet, along its first dimension."""
        from torch.distributed.tensor import Replicate, Shard

        mesh = self.view.mesh
        ways = {*self.view.shard, *self.view.replicate}
        if not isinstance(t, torch.Tensor) or t.device.type != "xla" or t.dim() == 0:
            return t
        count = math.prod(mesh.size(d) for d in ways)
        if t.shape[0] == 0 or t.shape[0] % count or spmd.sharding_of(plain(t)) is not None:
            return t
        placements = [Shard(0) if d in ways else Replicate() for d in range(mesh.ndim)]
        return constrained(plain(t), mesh, placements, None)


def _cast(t: Any, dtype: torch.dtype) -> Any:
    return t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t


def _owned(modules: Iterable[Any], params: list[Any]) -> list[tuple[Any, str]]:
    """The places of the parameters: a module and a name."""
    ids = {id(p) for p in params}
    return [
        (m, name)
        for root in modules
        for m in root.modules()
        for name, p in m._parameters.items()
        if id(p) in ids
    ]


def _cut_parameters(params: list[Any], view: _View, placement_fn: Any) -> None:
    grid, _ = view_of(view.mesh)
    for p in params:
        spmd.gathered_by_design.add(tuple(p.shape))
        spmd.mark_sharding(p, grid, _spec(p, view, _wanted(p, placement_fn)))


def _hook(state: Any, params: list[Any], modules: Any, view: _View, policy: Any) -> None:
    """Ours instead of torch's: there is nothing to gather or free by hand."""
    state._pre_forward_hook_handle.remove()
    state._post_forward_hook_handle.remove()
    run = _Forward(view, _owned(modules, params), policy)
    for module in modules:
        module.register_forward_pre_hook(run.before, prepend=True, with_kwargs=True)
        module.register_forward_hook(run.after, always_call=True)
    fence(modules)


def adjust(module: Any) -> None:
    """`module` is the one that defines fully_shard; meshes of other devices get torch's own."""
    info, group = module._get_mesh_info, module._init_param_group

    @functools.wraps(info)
    def _get_mesh_info(mesh: Any, dims: Any = None) -> Any:
        if mesh.device_type == "xla" and not is_view(mesh):
            raise NotImplementedError(
                f"fully_shard over {mesh!r}, a mesh of processes, is not built for device xla\n"
                "  try: one process with all the devices; or DistributedDataParallel"
            )
        return _view(mesh, dims) if is_view(mesh) else info(mesh, dims)

    @functools.wraps(group)
    def _init_param_group(
        state: Any, params: Any, modules: Any, mesh_info: Any, *rest: Any, **named: Any
    ) -> None:
        if not isinstance(mesh_info, _View):
            group(state, params, modules, mesh_info, *rest, **named)
            return
        _, _, placement_fn, policy, offload = rest
        if type(offload).__name__ != "OffloadPolicy":
            raise NotImplementedError(
                f"fully_shard: {offload!r} is not built for device xla\n  try: a larger mesh"
            )
        _cut_parameters(params, mesh_info, placement_fn)
        _hook(state, params, modules, mesh_info, policy)

    module._get_mesh_info = _get_mesh_info
    module._init_param_group = _init_param_group
