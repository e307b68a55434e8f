"""Manual sharding: a function of one device's parts, with collectives that it says itself.

    from torch_pjrt import manual, spmd

    @manual.region(mesh, in_specs=[("d", None), (None, None)], out_specs=[("d", None)])
    def f(x, w):                        # what one device has of each
        y = x @ w
        return y - manual.pmean(y.sum(), "d")

    z = f(x, w)                         # whole tensors, cut as the specs say

The function is recorded once a call, on stand-ins of a part's sizes, and becomes one region of the
program; around it everything is as ever. What it reads of other tensors is whole on each device. It
has no gradient of its own: give it one with torch.autograd.Function.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from . import _C
from ._control import Recorded
from .spmd import Mesh, Spec

__all__ = [
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "psum",
    "psum_scatter",
    "region",
]

Axes = str | tuple[str, ...]
_SUM, _LEAST, _GREATEST = 0, 2, 3
_here = threading.local()


class _Inside:
    """The region that this thread records."""

    def __init__(self, mesh: Mesh, like: torch.Tensor, replicas: bool) -> None:
        self.mesh, self.like, self.replicas = mesh, like, replicas

    def call(self, t: torch.Tensor, name: str, shape: Sequence[int], *how: Any) -> torch.Tensor:
        """A collective of the region's devices: parameters, groups, size of a group."""
        parameters, groups, size = how
        out: torch.Tensor = _C.manual_collective(
            t, name, list(shape), parameters, groups, size, replicas=self.replicas
        )
        return out

    def groups(self, axes: Axes) -> tuple[list[int], int]:
        """Partitions that differ only along these axes, group by group; how many in each."""
        names = (axes,) if isinstance(axes, str) else tuple(axes)
        for name in names:
            if name not in self.mesh.axis_names:
                raise ValueError(f"manual: no axis {name!r}, the mesh has {self.mesh.axis_names}")
        grid = self.mesh.get_logical_mesh()
        partition = {d: i for i, d in enumerate(sorted(self.mesh.device_ids))}
        along = [self.mesh.axis_names.index(n) for n in names]
        others = [i for i in range(grid.ndim) if i not in along]
        size = math.prod(grid.shape[i] for i in along)
        flat = grid.transpose([*others, *along]).reshape(-1).tolist()
        return [partition[d] for d in flat], size


def _inside(name: str) -> _Inside:
    found: _Inside | None = getattr(_here, "region", None)
    if found is None:
        raise RuntimeError(f"manual.{name}: called outside of a region\n  try: manual.region(...)")
    return found


def _call(
    name: str, t: torch.Tensor, shape: Sequence[int], parameters: Sequence[int], axes: Axes
) -> torch.Tensor:
    found = _inside(name)
    groups, size = found.groups(axes)
    return found.call(t, name, shape, list(parameters), groups, size)


def axis_size(axis: Axes) -> int:
    """How many devices the axis has."""
    return _inside("axis_size").groups(axis)[1]


def axis_index(axis: Axes) -> torch.Tensor:
    """The device's place along the axis: s64[]."""
    found = _inside("axis_index")
    groups, size = found.groups(axis)
    table = [0] * len(groups)
    for i, partition in enumerate(groups):
        table[partition] = i % size
    return found.call(found.like, "index", [], [], table, 1)


def psum(t: torch.Tensor, axis: Axes) -> torch.Tensor:
    """The sum over the devices of the axis, on each of them; shape and dtype are those of `t`.

    Raises RuntimeError outside of a region, ValueError for an axis that the mesh has not.
    """
    return _call("all_reduce", t, t.shape, [_SUM], axis)


def pmean(t: torch.Tensor, axis: Axes) -> torch.Tensor:
    """The mean over the devices of the axis: `psum` by their number, of the shape of `t`."""
    return psum(t, axis) / axis_size(axis)


def pmax(t: torch.Tensor, axis: Axes) -> torch.Tensor:
    """The greatest over the devices of the axis, element by element; shape and dtype of `t`."""
    return _call("all_reduce", t, t.shape, [_GREATEST], axis)


def pmin(t: torch.Tensor, axis: Axes) -> torch.Tensor:
    """The least over the devices of the axis, element by element; shape and dtype of `t`."""
    return _call("all_reduce", t, t.shape, [_LEAST], axis)


def _dim(t: torch.Tensor, dim: int) -> int:
    if not -t.dim() <= dim < t.dim():
        raise IndexError(f"manual: dim {dim} of a tensor with {t.dim()} dims")
    return dim % t.dim()


def _divided(t: torch.Tensor, dim: int, size: int) -> list[int]:
    shape = list(t.shape)
    if shape[dim] % size:
        raise ValueError(f"manual: dim {dim} ({shape[dim]}) is not divisible by the axis ({size})")
    shape[dim] //= size
    return shape


def all_gather(t: torch.Tensor, axis: Axes, dim: int = 0) -> torch.Tensor:
    """The parts of all devices of the axis, joined along `dim`: the shape is n times as long there.

    Raises IndexError for a `dim` that `t` has not.
    """
    dim = _dim(t, dim)
    shape = list(t.shape)
    shape[dim] *= axis_size(axis)
    return _call("all_gather", t, shape, [dim], axis)


def psum_scatter(t: torch.Tensor, axis: Axes, dim: int = 0) -> torch.Tensor:
    """The device's part, along `dim`, of the sum over the devices of the axis.

    The shape is that of `t` with dimension `dim` divided by the number of devices. Raises
    ValueError where it is not divisible, IndexError for a `dim` that `t` has not.
    """
    dim = _dim(t, dim)
    return _call("reduce_scatter", t, _divided(t, dim, axis_size(axis)), [_SUM, dim], axis)


def all_to_all(t: torch.Tensor, axis: Axes, split_dim: int, concat_dim: int) -> torch.Tensor:
    """Splits along one dim, sends a part to each device, joins what comes along another dim.

    The shape is that of `t` with `split_dim` divided by the number of devices and `concat_dim`
    multiplied by it. Raises ValueError where it is not divisible, IndexError for a dim that `t` has
    not.
    """
    split_dim, concat_dim = _dim(t, split_dim), _dim(t, concat_dim)
    shape = _divided(t, split_dim, axis_size(axis))
    shape[concat_dim] *= axis_size(axis)
    return _call("all_to_all", t, shape, [split_dim, concat_dim], axis)


def ppermute(t: torch.Tensor, axis: Axes, pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Sends `t` along the axis, from place to place; who gets none has zeros of its shape.

    `pairs` are (from, to), places along the axis. Raises ValueError for a place that is not on it.
    """
    found = _inside("ppermute")
    groups, size = found.groups(axis)
    for a, b in pairs:
        if not (0 <= a < size and 0 <= b < size):
            raise ValueError(f"manual.ppermute: pair ({a}, {b}) of an axis of {size}")
    flat = [
        groups[start + place]
        for start in range(0, len(groups), size)
        for pair in pairs
        for place in pair
    ]
    if not flat:
        return torch.zeros_like(t)
    return found.call(t, "permute", t.shape, [], flat, 2)


@contextmanager
def _recording(mesh: Mesh, like: torch.Tensor, replicas: bool) -> Iterator[None]:
    before = getattr(_here, "region", None)
    if before is not None:
        raise RuntimeError("manual.region: a region inside a region")
    _here.region = _Inside(mesh, like, replicas)
    try:
        # A backward pass inside runs on this thread, which is the one that records.
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        _here.region = None


def _checked(tensors: Sequence[Any], specs: Sequence[Spec], ins: Sequence[Any]) -> None:
    if len(tensors) != len(specs) or not tensors:
        raise ValueError(f"manual.region: {len(specs)} in_specs for {len(tensors)} arguments")
    for i, (t, spec) in enumerate(zip(tensors, specs, strict=True)):
        if not isinstance(t, torch.Tensor) or t.device.type != "xla":
            raise TypeError(f"manual.region: argument {i} is no tensor of device xla")
        if len(spec) != t.dim():
            raise ValueError(
                f"manual.region: in_specs {i} is {spec}, the tensor has {t.dim()} dims"
            )
        for d, parts in enumerate(ins[i].counts):
            if t.shape[d] % parts:
                raise ValueError(
                    f"manual.region: argument {i}: dim {d} ({t.shape[d]}) is not divisible by "
                    f"{parts} devices\n  try: pad it, or None for this dim"
                )
        if t.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                f"manual.region: argument {i} requires a gradient, the region has none\n"
                "  try: with torch.no_grad():, x.detach(), or a torch.autograd.Function around it"
            )


def _run(
    body: Any, args: Sequence[torch.Tensor], ins: Sequence[Any], outs: Sequence[Any], alone: bool
) -> list[torch.Tensor]:
    if not alone:
        return _C.record_manual(body, list(args), ins, outs)
    placed = [_C.on_mesh(t, s) for t, s in zip(args, ins, strict=True)]
    return _C.run_replicas(body, placed, ins, outs)


def region(
    mesh: Mesh, in_specs: Sequence[Spec], out_specs: Sequence[Spec], replicas: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function of parts one of whole tensors.

    Arguments are cut as `in_specs` say, results put together as `out_specs` say: parts along the
    axes that cut a dimension, and what stands in no spec is the same on each device of its axis.
    The function gives a tensor or a tuple of tensors. ValueError where sizes are not divisible.

    `replicas`: a call computes what is pending, and then runs as a program of its own, which every
    device runs on its parts as a replica. That asks nothing of the compiler's partitioner. Without
    it, the region is a part of the program that the graph around it becomes.
    """
    ins, outs = ([mesh.sharding(s) for s in specs] for specs in (in_specs, out_specs))

    def wrap(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def call(*args: Any) -> Any:
            _checked(args, in_specs, ins)
            if replicas:
                _C.sync(False)  # what the function reads besides is there, whole on each device
            like = [
                torch.empty(s.shard_shape(list(t.shape)), dtype=t.dtype, device=t.device)
                for t, s in zip(args, ins, strict=True)
            ]
            single = False

            def body(*parts: torch.Tensor) -> Sequence[torch.Tensor]:
                nonlocal single
                with _recording(mesh, parts[0], replicas):
                    out = f(*parts)
                single = isinstance(out, torch.Tensor)
                return [out] if single else list(out)

            with torch.no_grad():
                recorded = Recorded("manual.region", like, body)
                recorded.refuse_writes("manual.region", len(like))
                found = _run(recorded.finish(), args, ins, outs, replicas)
            return found[0] if single else tuple(found)

        return call

    return wrap
