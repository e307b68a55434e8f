"""`DeviceMesh` of device xla: over the devices of this process, or over processes.

torch leaves a mesh of xla half made: no coordinates, no slices, no groups. Two things are meant by
one. Without other processes it is a *view*: its numbers are devices of this process, nothing has a
rank, tensors are whole values that the compiler cuts (torch_pjrt.spmd). With a process group of
several ranks its numbers are ranks, as on every other device, one device a rank.

`import torch_pjrt` puts one `if` in front of `DeviceMesh.__init__`; the rest is put in place by the
first mesh of xla, so a program without one keeps torch's own code.
"""

import functools
import itertools
import math
import os
from typing import Any, NoReturn

import torch

from ._imports import after_import
from .spmd import Axis, Mesh

__all__ = ["install", "is_view", "made_ranks", "made_view", "spec_of", "split_count", "view_of"]

_classes: dict[str, Any] = {}


def is_view(mesh: Any) -> bool:
    """Whether the mesh is of devices of this process."""
    return bool(_classes) and isinstance(mesh, _classes["view"])


# ---- the two kinds ------------------------------------------------------------------------------


def _make_classes(base: Any) -> dict[str, Any]:
    """`base` is DeviceMesh."""

    class ViewMesh(base):  # type: ignore[misc]
        """A mesh of devices of this process. There is one process, so its place is the first."""

        @staticmethod
        def _get_mesh_tensor_from_full_mesh(full_mesh: Any, current_rank: Any = None) -> Any:
            return full_mesh[0]

        @staticmethod
        def _init_process_groups(*_: Any, **__: Any) -> list[str]:
            return []

        def get_group(self, mesh_dim: Any = None) -> NoReturn:
            raise RuntimeError(
                f"{self!r} is of devices of one process: it has no process group\n"
                "  try: nothing has to be sent by hand, the compiler puts the collectives in; "
                "or one process a device (torchrun) with init_process_group('xla')"
            )

        def get_rank(self) -> int:
            return 0

        def get_local_rank(self, mesh_dim: Any = None) -> int:
            if isinstance(mesh_dim, str):
                self._get_mesh_dim_by_name(mesh_dim)
            if self.ndim > 1 and mesh_dim is None:
                raise RuntimeError(f"get_local_rank: say which of the {self.ndim} mesh dims")
            return 0

        def _get_all_submeshes(self, mesh_dim_name: str) -> list[Any]:
            layout = type(self._layout)([self._layout[self._get_mesh_dim_by_name(mesh_dim_name)]])
            rows = layout.remap_to_tensor(self._rank_map)
            return [base("xla", row, mesh_dim_names=(mesh_dim_name,)) for row in rows]

        def __reduce__(self) -> Any:
            return made_view, (self._rank_map, self._layout, self._mesh_dim_names)

    class RankMesh(base):  # type: ignore[misc]
        """A mesh of ranks, as torch has it for other devices."""

        def __reduce__(self) -> Any:
            return made_ranks, (self.__getstate__(),)

    for cls in (ViewMesh, RankMesh):
        cls.__name__ = cls.__qualname__ = base.__name__
        cls.__module__ = base.__module__
    return {"view": ViewMesh, "ranks": RankMesh}


def _open(base: Any) -> None:
    """At the first mesh of xla."""
    if _classes:
        return
    from . import dtensor

    _classes.update(_make_classes(base))
    dtensor.open_doors()
    torch.serialization.add_safe_globals([made_view, made_ranks])


def made_view(rank_map: Any, layout: Any, names: Any) -> Any:
    """A mesh of devices that was stored or copied; a slice stays one."""
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh("xla", _layout=layout, _rank_map=rank_map, mesh_dim_names=names)


def made_ranks(state: dict[str, Any]) -> Any:
    """A mesh of ranks that was stored or copied."""
    from torch.distributed.device_mesh import DeviceMesh

    _open(DeviceMesh)
    mesh = _classes["ranks"].__new__(_classes["ranks"])
    mesh.__setstate__(state)
    return mesh


def _several_processes() -> bool:
    """Starts the group that torchrun asks for where nobody has."""
    import torch.distributed as dist

    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("xla")
    return dist.is_initialized() and dist.get_world_size() > 1


def _check_size(mesh: Any, several: bool) -> None:
    """A mesh has to be of what is there."""
    import torch.distributed as dist

    from . import _C

    have = dist.get_world_size() if several else _C.device_count()
    worst = int(mesh._rank_map.max())
    if worst < have:
        return
    if several:
        raise RuntimeError(
            f"{mesh!r} has rank {worst}, the process group {have} ranks\n"
            "  try: one process a device: torchrun --nproc_per_node; or one process with all the "
            "devices and no process group"
        )
    raise RuntimeError(
        f"{mesh!r} has device {worst}, the client {have}\n"
        "  try: TORCH_PJRT_CPU_DEVICES=8 gives the CPU client 8; or one process a device: "
        "torchrun, and init_process_group('xla') first"
    )


def _set_up_view(mesh: Any) -> None:
    mesh._dim_group_names = []
    mesh._rank = 0
    mesh._coordinate_on_dim = (0,) * len(mesh._layout)


def _set_up_ranks(mesh: Any, rest: dict[str, Any]) -> None:
    """What `DeviceMesh.__init__` does for other devices."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    resolve: Any = vars(distributed_c10d)["_resolve_process_group"]
    if rest.get("_init_backend", True):
        override = rest.get("backend_override") or ((None, None),) * len(mesh._layout)
        names = mesh._init_process_groups(
            mesh._layout, mesh._rank_map, mesh._mesh_dim_names, override
        )
        mesh._dim_group_names = names
        registry = mesh._get_root_mesh()._pg_registry
        registry.update({name: resolve(name) for name in names})
    rank = rest.get("_rank")
    mesh._rank = dist.get_rank() if rank is None else rank
    mesh._coordinate_on_dim = mesh._compute_coordinate_on_dim()


def _adjust(module: Any) -> None:
    base = module.DeviceMesh
    init: Any = getattr(base, "__init__", None)
    if not hasattr(base, "device_type"):  # a build without torch.distributed
        return

    @functools.wraps(init)
    def __init__(self: Any, device_type: str, mesh: Any = None, **rest: Any) -> None:  # noqa: N807
        if device_type != "xla":
            init(self, device_type, mesh, **rest)
            return
        _open(base)
        several = _several_processes()
        self.__class__ = _classes["ranks" if several else "view"]
        init(self, device_type, mesh, **rest)
        if rest.get("_root_mesh") is None:
            _check_size(self, several)
        _set_up_ranks(self, rest) if several else _set_up_view(self)

    base.__init__ = __init__


def install() -> None:
    """Finishes meshes of xla once torch.distributed.device_mesh is imported."""
    after_import("torch.distributed.device_mesh", _adjust)


# ---- as torch_pjrt.spmd has them ----------------------------------------------------------------


def _factors(mesh: Any) -> list[tuple[int, int]]:
    """(size, stride) of the finest axes that the mesh and its root need, the major one first."""
    root = mesh._get_root_mesh()
    cuts = {1, int(root._rank_map.numel())}
    for layout in (root._layout, mesh._layout):
        for dim in layout:
            for size, stride in zip(dim.shape, dim.stride, strict=True):
                cuts |= {stride, stride * size}
    steps = sorted(cuts)
    if any(b % a for a, b in itertools.pairwise(steps)):
        raise ValueError(f"{mesh!r} is not a grid over the devices of {root!r}")
    return [(b // a, a) for a, b in itertools.pairwise(steps)][::-1]


def _name_of(root: Any, size: int, stride: int) -> str:
    """The root's own name for an axis, where it has one."""
    for name, dim in zip(root._mesh_dim_names or (), root._layout, strict=False):
        if dim.shape == (size,) and dim.stride == (stride,):
            return str(name)
    return f"_{size}x{stride}"


def view_of(mesh: Any) -> tuple[Mesh, list[tuple[str, ...]]]:
    """The grid of all devices of the mesh's root, and the axes that each of its own dims is.

    A slice is not a smaller mesh: its tensors are on all devices, alike over the other axes.
    """
    known: tuple[Mesh, list[tuple[str, ...]]] | None = mesh.__dict__.get("_torch_pjrt_view")
    if known is None:
        root, factors = mesh._get_root_mesh(), _factors(mesh)
        names = {stride: _name_of(root, size, stride) for size, stride in factors}
        grid = Mesh(
            root._rank_map.tolist(), [n for n, _ in factors] or (1,), [*names.values()] or None
        )
        dims = [
            tuple(
                names[at]
                for n, stride in zip(dim.shape, dim.stride, strict=True)
                for _, at in factors
                if stride <= at < stride * n
            )
            for dim in mesh._layout
        ]
        known = mesh.__dict__["_torch_pjrt_view"] = grid, dims
    return known


def spec_of(mesh: Any, placements: Any, rank: int) -> tuple[Axis, ...]:
    """DTensor's placements as a partition spec over `view_of(mesh)`.

    ValueError where the numbers of placements and mesh dims differ, IndexError for a dim that the
    tensor has not.
    """
    if len(placements) != mesh.ndim:
        raise ValueError(
            "`placements` must have the same length as `device_mesh.ndim`! Found placements "
            f"length: {len(placements)}, and device_mesh.ndim: {mesh.ndim}."
        )
    _, dims = view_of(mesh)
    by_dim: list[list[str]] = [[] for _ in range(rank)]
    late: list[list[str]] = [[] for _ in range(rank)]
    for axes, placement in zip(dims, placements, strict=True):
        if placement.is_replicate() or placement.is_partial():
            continue  # a value is whole here: nothing is left to be summed
        if not -rank <= placement.dim < rank:
            raise IndexError(f"{placement} of a tensor of {rank} dims")
        strided = hasattr(placement, "split_factor") and placement.split_factor != 1
        (late if strided else by_dim)[placement.dim % rank].extend(axes)
    return tuple(tuple(a + b) or None for a, b in zip(by_dim, late, strict=True))


def split_count(grid: Mesh, entry: Axis) -> int:
    """In how many parts an entry of a spec cuts."""
    names = (entry,) if isinstance(entry, str) else entry or ()
    return math.prod(grid.shape()[name] for name in names)
