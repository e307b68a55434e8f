"""DTensors over devices of one process: xla tensors that are the whole value.

`distribute_tensor` makes them; so do `redistribute` and every op that takes one. Parameters of
modules stay plain tensors, see dtensor.py.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from . import _C, spmd
from ._device_mesh import is_view, spec_of, split_count, view_of

__all__ = [
    "as_leaf",
    "as_value",
    "constrained",
    "during",
    "handle",
    "mode",
    "normal",
    "plain",
    "results",
]

_state = threading.local()


@contextlib.contextmanager
def during(what: str) -> Iterator[None]:
    """What is done: parameters are given out ("partition"), a style sees values ("hooks")."""
    before = mode()
    _state.mode = what
    try:
        yield
    finally:
        _state.mode = before


def mode() -> str | None:
    """What `during` says, in this thread."""
    found: str | None = getattr(_state, "mode", None)
    return found


def plain(t: Any) -> Any:
    """The xla tensor itself."""
    if isinstance(t, torch.Tensor) and getattr(t, "_pjrt_mesh", None) is not None:
        with torch._C.DisableTorchFunctionSubclass():
            return t.as_subclass(torch.Tensor)
    return t


# ---- constraints --------------------------------------------------------------------------------


class _Constrain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, ahead: Any, back: Any) -> torch.Tensor:
        ctx.back = back
        out: torch.Tensor = _C.constrained(t, ahead)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] if ctx.back is None else _C.constrained(grads[0], ctx.back), None, None


def handle(mesh: Any, placements: Sequence[Any], rank: int) -> Any:
    """The constraint. Of the other axes of the root's mesh a slice says nothing."""
    grid, dims = view_of(mesh)
    spec = spec_of(mesh, placements, rank)
    if sum(map(len, dims)) == len(grid.axis_names):
        return grid.sharding(spec)
    whole = [
        axis
        for axes, placement in zip(dims, placements, strict=True)
        if placement.is_replicate()
        for axis in axes
    ]
    return _C.make_open_sharding(grid.device_ids, grid._axes(), spmd._names(grid, spec), whole)


def constrained(t: torch.Tensor, mesh: Any, placements: Any, back: Any) -> torch.Tensor:
    """The value with a constraint. `back`: placements of the gradient; None: none for it."""
    ahead = handle(mesh, placements, t.dim())
    backward = None if back is None else handle(mesh, back, t.dim())
    out: torch.Tensor = _Constrain.apply(t, ahead, backward)  # type: ignore[no-untyped-call]
    return out


# ---- the tensor ---------------------------------------------------------------------------------


def _placements_of(t: torch.Tensor, mesh: Any) -> tuple[Any, ...]:
    """Where a value is, in DTensor's words; a pending one is computed."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    grid, dims = view_of(mesh)
    if _C.state(t) == "view":  # nothing of its own is placed
        t = t.detach().clone()
    found = spmd.sharding_of(t, grid)
    if found is None:
        _C.sync(False)
        found = spmd.sharding_of(t, grid)
    out: list[Any] = [Replicate()] * len(dims)
    if found is None or found.mesh != grid:
        return tuple(out)
    for d, entry in enumerate(found.spec):
        names = (entry,) if isinstance(entry, str) else entry or ()
        for i, axes in enumerate(dims):
            if not axes or axes[0] not in names:
                continue
            inner = [a for a in names[: names.index(axes[0])] if a not in axes]
            later = [a for more in dims[i + 1 :] for a in more if a in inner]
            factor = split_count(grid, tuple(later))
            out[i] = Shard(d) if factor == 1 else _StridedShard(d, split_factor=factor)
    return tuple(out)


def _missing(self: Any) -> Any:
    """For what torch looks for by hasattr."""
    raise AttributeError("not of a value that is whole")


@functools.cache
def _tensor_class() -> Any:
    """The class of DTensors over devices of one process; made late, to import nothing early."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
    from torch.overrides import get_default_nowrap_functions

    bare = get_default_nowrap_functions()

    class ViewDTensor(DTensor):
        """An xla tensor, the whole value, that answers as a DTensor; and so do results of it."""

        _pjrt_mesh: Any = None
        _pjrt_placements: tuple[Any, ...] | None = None
        __torch_dispatch__ = torch._C._disabled_torch_dispatch_impl  # type: ignore[assignment]
        # torch takes a tensor that has these apart; this one has no parts
        __tensor_flatten__ = property(_missing)  # type: ignore[assignment]
        __create_write_items__ = property(_missing)  # type: ignore[assignment]
        __create_chunk_list__ = property(_missing)  # type: ignore[assignment]
        __get_tensor_shard__ = property(_missing)  # type: ignore[assignment]

        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            with torch._C.DisableTorchFunctionSubclass():
                out = func(*args, **(kwargs or {}))
                if func in bare:
                    return out
                return results(out, _first_mesh(args, kwargs))

        @property
        def device_mesh(self) -> Any:
            return self._pjrt_mesh

        @property
        def placements(self) -> tuple[Any, ...]:
            if self._pjrt_placements is None:
                if mode() == "hooks":
                    return ()  # not known before it runs; a style puts it where it wants it
                self._pjrt_placements = _placements_of(plain(self), self._pjrt_mesh)
            return self._pjrt_placements

        @property
        def _spec(self) -> Any:  # type: ignore[override]
            meta = TensorMeta(self.shape, self.stride(), self.dtype)
            return DTensorSpec(self._pjrt_mesh, self.placements, tensor_meta=meta)

        @property
        def _local_tensor(self) -> Any:  # type: ignore[override]
            return self.to_local()

        def full_tensor(self, *, grad_placements: Any = None) -> torch.Tensor:
            """The value, which is whole already; nothing moves."""
            out: torch.Tensor = plain(self)
            return out

        def to_local(self, *, grad_placements: Any = None) -> torch.Tensor:
            """The value where every device holds all of it, or in a style's hook; else raises."""
            if mode() != "hooks" and not all(p.is_replicate() for p in self.placements):
                raise RuntimeError(
                    f"DTensor.to_local of a tensor placed as {self.placements}: its parts are on "
                    "devices of one process, and none of them is this process's own\n"
                    "  try: .full_tensor() is the value, torch_pjrt.spmd.local_shards(t) its parts "
                    "on the host"
                )
            out: torch.Tensor = plain(self)
            return out

        def redistribute(
            self,
            device_mesh: Any = None,
            placements: Any = None,
            *,
            async_op: bool = False,
            forward_dtype: torch.dtype | None = None,
            backward_dtype: torch.dtype | None = None,
        ) -> Any:
            """The value with other placements: a constraint, for it and its gradient."""
            return _redistributed(
                self, device_mesh or self._pjrt_mesh, placements, forward_dtype, backward_dtype
            )

        def __reduce_ex__(self, protocol: Any) -> Any:
            return plain(self).__reduce_ex__(protocol)

        def __deepcopy__(self, memo: Any) -> Any:
            copy = as_leaf(plain(self.detach()).clone(), self.requires_grad, self._pjrt_mesh)
            copy._pjrt_placements = self._pjrt_placements
            if getattr(self, "_is_param", False):
                copy._is_param = True
            memo[id(self)] = copy
            return copy

        def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]
            text = repr(plain(self.detach()))
            return f"DTensor({text}, device_mesh={self._pjrt_mesh}, placements={self.placements})"

    ViewDTensor.__name__ = ViewDTensor.__qualname__ = "DTensor"
    return ViewDTensor


def _first_mesh(args: Any, kwargs: Any) -> Any:
    for a in (*args, *(kwargs or {}).values()):
        mesh = getattr(a, "_pjrt_mesh", None)
        if mesh is None and isinstance(a, list | tuple):
            mesh = _first_mesh(a, None)
        if mesh is not None:
            return mesh
    return None


def as_value(t: torch.Tensor, mesh: Any, placements: Any = None) -> Any:
    """A tensor of a graph, as a DTensor."""
    with torch._C.DisableTorchFunctionSubclass():
        out: Any = t.as_subclass(_tensor_class())
    out._pjrt_mesh, out._pjrt_placements = mesh, placements
    return out


def as_leaf(t: torch.Tensor, requires_grad: bool, mesh: Any) -> Any:
    """A DTensor that shares the tensor and is a leaf."""
    out: Any = torch.Tensor._make_subclass(_tensor_class(), t.detach(), requires_grad)
    out._pjrt_mesh = mesh
    return out


def results(out: Any, mesh: Any) -> Any:
    """What an op or module gave, with DTensors for tensors."""
    if isinstance(out, torch.Tensor):
        if mesh is None or getattr(out, "_pjrt_mesh", None) is not None:
            return out
        return as_value(out, mesh) if out.device.type == "xla" else out
    if isinstance(out, list | tuple) and any(isinstance(x, torch.Tensor) for x in out):
        return tree_map(lambda x: results(x, mesh) if isinstance(x, torch.Tensor) else x, out)
    return out


def _redistributed(t: Any, mesh: Any, placements: Any, dtype: Any, backward_dtype: Any) -> Any:
    if placements is None:
        raise RuntimeError("placements is needed for redistribute!")
    if not is_view(mesh) or mesh._get_root_mesh() != t._pjrt_mesh._get_root_mesh():
        raise RuntimeError(f"redistribute: from {t._pjrt_mesh!r} to a mesh of others, {mesh!r}")
    if any(p.is_partial() for p in placements):
        raise RuntimeError(
            "redistribute: to Partial is for internal use of torch; a value is whole here"
        )
    if backward_dtype not in (None, t.dtype):
        raise NotImplementedError(
            "redistribute: backward_dtype is not built\n  try: a cast before and after"
        )
    value = plain(t)
    source = t._pjrt_placements if mesh == t._pjrt_mesh else None
    if dtype is not None:
        value = value.to(dtype)
    there = normal(placements, value.dim())
    return as_value(constrained(value, mesh, there, source), mesh, there)


def normal(placements: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """With dims counted from the front."""
    from torch.distributed.tensor import Shard

    return tuple(
        Shard(p.dim + rank) if isinstance(p, Shard) and p.dim < 0 else p for p in placements
    )
