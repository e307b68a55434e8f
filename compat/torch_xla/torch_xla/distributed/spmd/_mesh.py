"""Meshes as torch_xla has them, over torch_pjrt's."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from torch_pjrt import spmd

from ... import _XLAC
from ..._names import later

_global: dict[str, Any] = {"mesh": None}


class Mesh:
    """A grid of devices; `ours` is torch_pjrt's. AssertionError for what does not fit."""

    def __init__(
        self, device_ids: Any, mesh_shape: Sequence[int], axis_names: Sequence[str] | None = None
    ) -> None:
        ids = np.array(list(device_ids) if isinstance(device_ids, range) else device_ids)
        self.device_ids = ids.reshape(-1)
        self.mesh_shape = tuple(int(n) for n in mesh_shape)
        self.axis_names = None if axis_names is None else tuple(axis_names)
        self._check()
        self.ours = spmd.Mesh(self.device_ids.tolist(), self.mesh_shape, self.axis_names)

    def _check(self) -> None:
        names, count = self.axis_names, len(self.device_ids)
        if names is not None:
            assert len(names) == len(self.mesh_shape), (
                f"Number of axis names ({len(names)}) must match mesh dimensions "
                f"({len(self.mesh_shape)})"
            )
            assert len(set(names)) == len(names), f"Axis names must be unique, found {names}"
        assert count == math.prod(self.mesh_shape), (
            f"Number of device IDs ({count}) must match mesh size ({math.prod(self.mesh_shape)})"
        )
        assert len(set(self.device_ids.tolist())) == count, "Device IDs must be unique"
        have = _XLAC._xla_num_runtime_devices()
        assert count == 0 or self.device_ids.max() < have, (
            f"Device IDs must be less than mesh size: found {self.device_ids.max()}, the client "
            f"has {have} devices"
        )

    def size(self) -> int:
        return len(self.device_ids)

    def shape(self) -> OrderedDict[str, int]:
        return self.ours.shape()

    def get_logical_mesh(self) -> Any:
        return self.device_ids.reshape(self.mesh_shape)

    def get_axis_name_idx(self, name: str) -> int | None:
        """Its place; None for a name that the mesh has not."""
        names = self.axis_names or ()
        return names.index(name) if name in names else None

    def get_op_sharding(self, partition_spec: Any, flatten_opsharding: bool = False) -> Any:
        """The spec over this mesh."""
        return _XLAC.OpSharding.over(self.ours, partition_spec)

    get_jax_mesh = later(
        "distributed.spmd.Mesh.get_jax_mesh",
        "jax.sharding.Mesh over jax's devices, by device_ids and mesh_shape",
    )

    @classmethod
    def from_str(cls, mesh_str: str) -> Mesh | None:
        """What str() gave; None for another text."""
        import ast
        import re

        parts = re.fullmatch(r"(\(.*?\)|\[.*?\])_(\(.*?\))_(.*)", mesh_str)
        if parts is None:
            return None
        ids, shape, names = map(ast.literal_eval, parts.groups())
        return cls(list(ids), shape, names)

    def __str__(self) -> str:
        return f"{self.device_ids.tolist()}_{self.mesh_shape}_{self.axis_names}"

    def __repr__(self) -> str:
        return f"Mesh({self.device_ids.tolist()}, {self.mesh_shape}, {self.axis_names})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class HybridMesh(Mesh):
    """Fast axes inside a slice, slow ones (`dcn`) between slices, each size their product."""

    def __init__(
        self,
        *,
        ici_mesh_shape: Sequence[int],
        dcn_mesh_shape: Sequence[int] | None = None,
        axis_names: Sequence[str] | None = None,
    ) -> None:
        between = tuple(dcn_mesh_shape or (1,) * len(ici_mesh_shape))
        assert len(between) == len(ici_mesh_shape), "ici_mesh_shape and dcn_mesh_shape differ"
        sizes = tuple(a * b for a, b in zip(ici_mesh_shape, between, strict=True))
        slices = [s.reshape(ici_mesh_shape) for s in self._slices()]
        assert len(slices) == math.prod(between), (
            f"dcn_mesh_shape {between} does not fit {len(slices)} slices"
        )
        blocks = np.empty(between, dtype=object)
        for index, block in zip(np.ndindex(*between), slices, strict=True):
            blocks[index] = block
        super().__init__(np.block(blocks.tolist()).reshape(-1), sizes, axis_names)

    @staticmethod
    def _slices() -> list[Any]:
        """Device ids by slice, each in the order of its places."""
        from ... import runtime as xr

        found: dict[int, list[tuple[Any, int]]] = {}
        for i, d in enumerate(xr.global_runtime_device_attributes()):
            place = (tuple(reversed(d.get("coords", [i]))), d.get("core_on_chip", 0))
            number = int(str(d.get("name", f":{i}")).rpartition(":")[2])
            found.setdefault(d.get("slice_index", 0), []).append((place, number))
        return [np.array([n for _, n in sorted(found[s])]) for s in sorted(found)]


def ours(mesh: Any) -> spmd.Mesh:
    """torch_pjrt's mesh of either kind; of None the global one."""
    if mesh is None:
        mesh = get_global_mesh()
        if mesh is None:
            raise AssertionError("no mesh is given, and none was set with set_global_mesh()")
    if isinstance(mesh, spmd.Mesh | Mesh):
        found: spmd.Mesh = getattr(mesh, "ours", mesh)
        return found
    from .api import convert_to_xla_mesh  # DTensor's

    return convert_to_xla_mesh(mesh).ours


def set_global_mesh(mesh: Mesh) -> None:
    """The mesh of calls that name none."""
    _global["mesh"] = mesh


def get_global_mesh() -> Mesh | None:
    """None: no mesh was set."""
    found: Mesh | None = _global["mesh"]
    return found


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices in a line."""
    count = _XLAC._xla_num_runtime_devices()
    return Mesh(np.arange(count), (count,), None if axis_name is None else (axis_name,))
