"""SPMD: one program over many devices, by saying how a few tensors are cut.

A `Mesh` names the axes of a grid of devices; a partition spec says, by dimension, which axes cut
it: `("data", None)`, `(("x", "y"), None)`. `mark_sharding` puts a tensor on the mesh; from there on
every graph that reads it is compiled once for all devices and runs on all of them. No mode is
needed. docs/spmd.md tells the way of a spec down to the bytes on a device.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from torch_pjrt import _C
from torch_pjrt._barrier import blocks_of, fence
from torch_pjrt._constraint import constrain

Axis = str | tuple[str, ...] | None
Spec = Sequence[Axis | int]

_asked = {"use_spmd": False}


def use_spmd() -> None:
    """What torch_xla wants said first; here at any time, or never.

    A graph is SPMD where a tensor in it is sharded.
    """
    _asked["use_spmd"] = True


def is_spmd() -> bool:
    """Whether `use_spmd()` was called."""
    return _asked["use_spmd"]


def virtual_device() -> str:
    """The one device that stands for all of a mesh's, by the name that torch_xla gives it."""
    return "SPMD:0"


class Mesh:
    """A grid of devices with named axes.

    `device_ids` fill `mesh_shape` row-major, in any order; axes without names are called `_0`,
    `_1`. ValueError where sizes and devices do not fit together.
    """

    def __init__(
        self,
        device_ids: Iterable[int],
        mesh_shape: Sequence[int],
        axis_names: Sequence[str] | None = None,
    ) -> None:
        flat = getattr(device_ids, "reshape", None)
        ids = flat(-1).tolist() if flat is not None else device_ids
        self.device_ids = [int(d) for d in ids]
        self.mesh_shape = tuple(int(n) for n in mesh_shape)
        if axis_names is not None and len(axis_names) != len(self.mesh_shape):
            raise ValueError(
                f"mesh: {len(axis_names)} axis names for a mesh of {len(self.mesh_shape)} axes"
            )
        self.axis_names = tuple(axis_names or (f"_{i}" for i in range(len(self.mesh_shape))))
        _C.check_mesh(self.device_ids, self._axes())

    def _axes(self) -> list[tuple[str, int]]:
        return list(zip(self.axis_names, self.mesh_shape, strict=True))

    def size(self) -> int:
        """How many devices it has."""
        return len(self.device_ids)

    def shape(self) -> OrderedDict[str, int]:
        """Sizes by axis name."""
        return OrderedDict(self._axes())

    def get_logical_mesh(self) -> Any:
        """Device ids as a numpy array of the mesh's shape."""
        import numpy as np

        return np.array(self.device_ids).reshape(self.mesh_shape)

    def sub(self, **index: int) -> Mesh:
        """The part of the mesh where the named axes have these indices: `mesh.sub(x=0)`.

        Raises ValueError for an axis that the mesh has not.
        """
        grid = self.get_logical_mesh()
        for name in index:
            if name not in self.axis_names:
                raise ValueError(f"mesh: no axis {name!r}, its axes are {self.axis_names}")
        part = grid[tuple(index.get(name, slice(None)) for name in self.axis_names)]
        left = [name for name in self.axis_names if name not in index]
        return Mesh(part.reshape(-1).tolist(), part.shape or (1,), left or ("_0",))

    def sharding(self, spec: Spec) -> Any:
        """The spec over this mesh, as the core has it.

        ValueError for an unknown axis, or one that comes twice.
        """
        return _C.make_sharding(self.device_ids, self._axes(), _names(self, spec))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Mesh)
            and self.device_ids == other.device_ids
            and self._axes() == other._axes()
        )

    def __hash__(self) -> int:
        return hash((tuple(self.device_ids), self.mesh_shape, self.axis_names))

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in self._axes())
        return f"Mesh({axes}; devices {self.device_ids})"


def _names(mesh: Mesh, spec: Spec) -> list[list[str]]:
    """The axes of each dimension, by name; torch_xla's numbers are places of axes."""

    def name(axis: Any) -> str:
        if isinstance(axis, int):
            if not 0 <= axis < len(mesh.axis_names):
                raise ValueError(f"partition spec: axis {axis} of a mesh of {len(mesh.axis_names)}")
            return mesh.axis_names[axis]
        return str(axis)

    return [
        [] if d is None else [name(a) for a in (d if isinstance(d, tuple | list) else (d,))]
        for d in spec
    ]


@dataclass(frozen=True)
class Sharding:
    """Where a tensor is. `real`: it is there; else it was asked to be (a pending value)."""

    mesh: Mesh
    spec: tuple[Axis, ...]
    shape: tuple[int, ...]
    shard_shape: tuple[int, ...]
    replicated: bool
    real: bool
    text: str  # {devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}
    devices: tuple[int, ...]
    boxes: tuple[tuple[int, tuple[slice, ...]], ...]  # by device: what it holds

    def visualize(self) -> str:
        """A picture in text: the grid of parts, each with the devices that hold it."""
        return _picture(self)


def _axis(names: list[str]) -> Axis:
    return None if not names else names[0] if len(names) == 1 else tuple(names)


def _described(handle: Any, shape: tuple[int, ...], real: bool) -> Sharding:
    mesh = Mesh(handle.mesh_devices, [n for _, n in handle.axes], [name for name, _ in handle.axes])
    spec = [_axis(names) for names in handle.spec] or [None] * len(shape)
    boxes = tuple(
        (device, tuple(slice(a, a + n) for a, n in zip(start, size, strict=True)))
        for device, start, size in handle.boxes(shape)
    )
    return Sharding(
        mesh=mesh,
        spec=tuple(spec) if not handle.replicated else (None,) * len(shape),
        shape=shape,
        shard_shape=tuple(handle.shard_shape(shape)),
        replicated=handle.replicated,
        real=real,
        text=handle.gspmd,
        devices=tuple(handle.devices),
        boxes=boxes,
    )


def _as_operator(t: torch.Tensor, mesh: Mesh, spec: Spec) -> torch.Tensor:
    """The constraint as an operator, which a traced graph keeps; its gradient has it too."""
    by_dimension = ",".join("+".join(axes) for axes in _names(mesh, spec))
    sizes, axes = list(mesh.mesh_shape), ",".join(mesh.axis_names)
    out: torch.Tensor = constrain(t, mesh.device_ids, axes, sizes, by_dimension)
    return out


def mark_sharding(t: torch.Tensor, mesh: Mesh, partition_spec: Spec) -> torch.Tensor:
    """Puts `t` on the mesh, in place, and gives it back.

    `partition_spec` has one entry a dimension: an axis name, a tuple of them (the major one first)
    or None. Bytes on the host are cut before they go up, so that no device ever has all of them;
    bytes on devices move; a value that is not computed yet gets a constraint, which later values of
    the tensor do not inherit. A CPU tensor goes up first. ValueError, with what to do, where a
    dimension is not divisible, the spec has another length than the tensor has dimensions, or an
    axis is unknown or used twice. Inside torch.compile the value that is returned has the
    constraint, and its gradient too.
    """
    if torch.compiler.is_compiling():
        return _as_operator(t, mesh, partition_spec)
    with torch.no_grad():
        if t.device.type == "cpu":
            t = t.to("xla")
        if len(partition_spec) != t.dim():
            entries, dims = len(partition_spec), t.dim()
            raise ValueError(
                f"mark_sharding: the spec has {entries} {'entry' if entries == 1 else 'entries'}, "
                f"the tensor {dims} {'dim' if dims == 1 else 'dims'}"
            )
        _C.mark_sharding(t, mesh.sharding(partition_spec))
    return t


def clear_sharding(t: torch.Tensor) -> torch.Tensor:
    """Makes every device of its mesh hold the whole tensor; gives `t`, its shape as before."""
    handle, _ = _C.sharding_of(t)
    if handle is not None and not handle.replicated:
        axes = [("_0", len(handle.devices))]
        _C.mark_sharding(t, _C.make_sharding(handle.devices, axes, []))
    return t


class _MarkWithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: torch.Tensor, handle: Any) -> torch.Tensor:
        ctx.handle = handle
        out: torch.Tensor = _C.constrained(t, handle)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _C.constrained(grads[0], ctx.handle), None


def mark_sharding_with_gradients(t: torch.Tensor, mesh: Mesh, partition_spec: Spec) -> torch.Tensor:
    """`t` with a constraint on its value and on its gradient, as a new tensor of its shape.

    Functions that trace (torch.compile, AOTAutograd, make_fx) see an operator.
    """
    if torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None:
        return _as_operator(t, mesh, partition_spec)
    out: torch.Tensor = _MarkWithGradients.apply(  # type: ignore[no-untyped-call]
        t, mesh.sharding(partition_spec)
    )
    return out


def sharding_of(t: torch.Tensor, mesh: Mesh | None = None) -> Sharding | None:
    """Where `t` is, or, while its value is pending, was asked to be.

    None: on one device, or, of a pending value, wherever its program will put it. `mesh`: the one
    whose axes the spec names.
    """
    handle, real = _C.sharding_of(t)
    if handle is None:
        return None
    if mesh is not None:
        handle = handle.over(mesh.device_ids, mesh._axes(), t.dim()) or handle
    return _described(handle, tuple(t.shape), real)


@dataclass(frozen=True)
class Shard:
    """What one device holds of a tensor: `index` says which part, `data` is a copy on the host."""

    device: int
    index: tuple[slice, ...]
    replica: int  # 0 for the first of the devices that hold this part
    data: torch.Tensor


def local_shards(t: torch.Tensor) -> list[Shard]:
    """The parts of `t`, by device. A pending value is computed first."""
    return [
        Shard(device, tuple(slice(a, a + n) for a, n in zip(start, size, strict=True)), replica, x)
        for device, start, size, replica, x in _C.local_shards(t)
    ]


def visualize(t: torch.Tensor) -> str:
    """A picture of which device holds what of `t`, in text."""
    s = sharding_of(t)
    if s is None:
        return f"{tuple(t.shape)}: on one device"
    return s.visualize()


def _cells(s: Sharding) -> tuple[list[list[str]], tuple[int, int]]:
    """Devices by row and column of parts, and the dimensions that rows and columns go along."""
    held: dict[tuple[int, ...], list[int]] = {}
    for device, index in s.boxes:
        held.setdefault(tuple(i.start for i in index), []).append(device)
    cut = [d for d, (n, m) in enumerate(zip(s.shape, s.shard_shape, strict=True)) if n != m]
    across = len(cut) == 1 and 0 < cut[0] == len(s.shape) - 1  # only the last is cut: side by side
    rows = -1 if across else cut[0] if cut else 0
    columns = next((d for d in cut if d > rows), -1)
    grid: dict[int, list[str]] = {}
    for start, devices in sorted(held.items()):
        row = start[rows] if start and rows >= 0 else 0
        grid.setdefault(row, []).append(",".join(map(str, sorted(devices))))
    return list(grid.values()), (rows, columns)


def _picture(s: Sharding) -> str:
    state = "" if s.real else " (asked)"
    axes = ", ".join(repr(a) for a in s.spec)
    head = f"{list(s.shape)} as ({axes}) on {s.mesh}: parts of {list(s.shard_shape)}{state}"
    cells, (rows, columns) = _cells(s)
    width = max(len(c) for row in cells for c in row) + 2
    line = "+" + "+".join("-" * width for _ in range(max(map(len, cells)))) + "+"
    body = [head]
    if any(n != m for n, m in zip(s.shape, s.shard_shape, strict=True)):
        ways = [f"{way} dim {d}" for way, d in (("down", rows), ("across", columns)) if d >= 0]
        body.append(f"{', '.join(ways)}; devices that hold each part:")
    body.append(line)
    for row in cells:
        body += ["|" + "|".join(c.center(width) for c in row) + "|", line]
    return "\n".join(body)


# Sizes of parameters that `fully_shard` cut: to gather them is what it is for (_sharded.py).
gathered_by_design: set[tuple[int, ...]] = set()


def _spec_of_parameter(p: torch.Tensor, count: int, axis: str) -> tuple[Axis, ...]:
    """The first dimension where it is divisible, else the largest that is, else none."""
    fits = [d for d in range(p.dim()) if p.shape[d] % count == 0 and p.shape[d] > 0]
    if not fits:
        return (None,) * p.dim()
    best = 0 if 0 in fits else max(fits, key=lambda d: p.shape[d])
    return tuple(axis if d == best else None for d in range(p.dim()))


def fully_shard(
    module: torch.nn.Module,
    mesh: Mesh,
    axis: str | None = None,
    blocks: Iterable[torch.nn.Module] | None = None,
) -> torch.nn.Module:
    """Cuts every parameter and buffer of `module` over a mesh axis (the first): FSDP by annotation.

    The compiler gathers a weight where a layer needs it and scatters its gradient. The module and
    its Parameter objects stay; parameters that cannot be cut evenly are on every device.

    Before each of `blocks` stands a barrier, so that its weights are not gathered before its inputs
    are there: without one, all blocks' may be whole at a time. By default: the items of the
    outermost ModuleLists and Sequentials in `module`, else the module itself; `()`: none.
    """
    axis = axis or mesh.axis_names[0]
    count = math.prod(n for name, n in mesh._axes() if name == axis)
    for t in (*module.parameters(), *module.buffers()):
        gathered_by_design.add(tuple(t.shape))
        mark_sharding(t, mesh, _spec_of_parameter(t, count, axis))
    fence(blocks_of(module) if blocks is None else blocks)
    return module


def shard_batch(batch: torch.Tensor, mesh: Mesh, axis: str | None = None) -> torch.Tensor:
    """`batch`, cut along its first dimension over a mesh axis (the first)."""
    return mark_sharding(batch, mesh, (axis or mesh.axis_names[0], *(None,) * (batch.dim() - 1)))
