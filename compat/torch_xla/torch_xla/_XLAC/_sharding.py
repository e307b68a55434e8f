"""How tensors are cut over devices."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from torch_pjrt import _C, spmd

from .. import _counts

__all__ = [
    "OpSharding", "XlaShardingSpec", "_get_local_shard_replica_and_indices", "_get_local_shards",
    "_get_xla_op_sharding", "_get_xla_sharding_spec", "_get_xla_sharding_specs",
    "_get_xla_sharding_type", "_global_tensor_from_cpu_shards", "_load_local_shards",
    "_xla_annotate_custom_sharding", "_xla_clear_sharding", "_xla_get_auto_sharding",
    "_xla_get_spmd_config_is_locked", "_xla_mark_sharding", "_xla_set_auto_sharding", "even_spec",
]  # fmt: skip

REPLICATED, TILED, PARTIAL = 0, 3, 5
_auto = {"on": False}


class OpSharding:
    """A partition spec over a mesh. Made of a list of tiles as torch_xla makes it, or by over()."""

    def __init__(
        self, tile_assignment: Any, group_assignment: Any, replication_groups: Any,
        sharding_type: int, minibatch: bool = False,
    ) -> None:  # fmt: skip
        self.tiles, self.type = tile_assignment, int(sharding_type)
        self.mesh: Any = None
        self.spec: Any = None

    @classmethod
    def over(cls, mesh: Any, spec: Sequence[Any]) -> "OpSharding":
        """Of torch_pjrt's mesh."""
        handle = mesh.sharding(spec)
        made = cls([], [], [], _kind(handle))
        made.mesh, made.spec = mesh, tuple(spec)
        made_before = vars(mesh).setdefault("_op_shardings", set())  # of this very mesh
        if str(spec) not in made_before:
            made_before.add(str(spec))
            _counts.add("CreateOpSharding")
        return made

    def __str__(self) -> str:
        return _text(self.mesh.sharding(self.spec)) if self.mesh is not None else "{replicated}"


XlaShardingSpec = OpSharding


def even_spec(t: torch.Tensor, mesh: Any, spec: Sequence[Any]) -> tuple[Any, ...]:
    """The spec without what does not divide the tensor's sizes: told once a line, and counted.

    torch_xla pads such a dimension; here it is whole on each device. `mesh` is torch_pjrt's.
    """
    counts = mesh.sharding(spec).counts
    if len(spec) != t.dim() or len(counts) != t.dim():
        return tuple(spec)
    uneven = [d for d, n in enumerate(counts) if t.shape[d] % n]
    if uneven:
        _counts.add("UnevenSharding")
        said = ", ".join(f"dim {d} ({t.shape[d]}) over {counts[d]} devices" for d in uneven)
        warnings.warn(
            f"mark_sharding: {said} cannot be cut evenly, and is whole on each of them\n"
            f"  try: pad it to {-(-t.shape[uneven[0]] // counts[uneven[0]]) * counts[uneven[0]]}",
            stacklevel=3,
        )
    return tuple(None if d in uneven else axes for d, axes in enumerate(spec))


def _kind(handle: Any) -> int:
    if handle.replicated:
        return REPLICATED
    return PARTIAL if handle.replicas > 1 else TILED


def _text(handle: Any) -> str:
    """{devices=[2,1,4]0,1,... last_tile_dim_replicate}: devices one by one."""
    if handle.replicated:
        return "{replicated}"
    sizes = [*handle.counts, *([handle.replicas] if handle.replicas > 1 else [])]
    ids = ",".join(str(handle.devices[i]) for i in handle.order)
    tail = " last_tile_dim_replicate" if handle.replicas > 1 else ""
    return f"{{devices=[{','.join(map(str, sizes))}]{ids}{tail}}}"


def _handle(t: torch.Tensor) -> Any:
    if t.device.type != "xla" or getattr(t, "_xla_cleared", False):
        return None
    return _C.sharding_of(t.as_subclass(torch.Tensor))[0]


def _get_xla_sharding_spec(t: torch.Tensor) -> str:
    """Empty where it is on one device."""
    handle = _handle(t)
    return "" if handle is None else _text(handle)


def _get_xla_sharding_specs(tensors: list[torch.Tensor]) -> list[str]:
    return [_get_xla_sharding_spec(t) for t in tensors]


def _get_xla_sharding_type(t: torch.Tensor) -> int | None:
    handle = _handle(t)
    return None if handle is None else _kind(handle)


def _get_xla_op_sharding(t: torch.Tensor) -> OpSharding | None:
    s = spmd.sharding_of(t.as_subclass(torch.Tensor))
    return None if s is None else OpSharding.over(s.mesh, s.spec)


def _xla_mark_sharding(t: torch.Tensor, sharding: OpSharding) -> None:
    if sharding.mesh is None:
        raise RuntimeError("_xla_mark_sharding: a sharding is made by Mesh.get_op_sharding here")
    vars(t).pop("_xla_cleared", None)
    spmd.mark_sharding(t, sharding.mesh, even_spec(t, sharding.mesh, sharding.spec))


_xla_annotate_custom_sharding = _xla_mark_sharding


def _xla_clear_sharding(t: torch.Tensor) -> None:
    spmd.clear_sharding(t)
    t._xla_cleared = True  # type: ignore[attr-defined]


def _get_local_shards(tensors: list[torch.Tensor]) -> list[list[tuple[torch.Tensor, str]]]:
    return [
        [(s.data, f"CPU:{s.device}") for s in spmd.local_shards(t.as_subclass(torch.Tensor))]
        for t in tensors
    ]


def _get_local_shard_replica_and_indices(tensors: list[torch.Tensor]) -> list[list[Any]]:
    return [
        [(s.replica, list(s.index)) for s in spmd.local_shards(t.as_subclass(torch.Tensor))]
        for t in tensors
    ]


def _load_local_shards(t: torch.Tensor, parts: list[torch.Tensor], shards: Any = ()) -> None:
    """Writes the parts where local_shards() found them."""
    have = spmd.local_shards(t)
    s = spmd.sharding_of(t)
    if s is None or s.replicated:
        raise RuntimeError("_load_local_shards: expected a tensor that is cut, found a whole one")
    if len(parts) != len(have):
        raise RuntimeError(f"_load_local_shards: expected {len(have)} shards, found {len(parts)}")
    whole = torch.empty(t.shape, dtype=t.dtype)
    for part, old in zip(parts, have, strict=True):
        if part.shape != old.data.shape or part.dtype != old.data.dtype:
            raise RuntimeError(
                f"_load_local_shards: expected {old.data.dtype}{list(old.data.shape)} on device "
                f"{old.device}, found {part.dtype}{list(part.shape)}"
            )
        whole[old.index] = part
    with torch.no_grad():
        t.copy_(whole)


def _global_tensor_from_cpu_shards(
    shards: list[torch.Tensor], sharding: OpSharding, shape: Any = None
) -> torch.Tensor:
    """The tensor whose parts, one a device, these are."""
    handle = sharding.mesh.sharding(sharding.spec)
    if len(shards) != len(handle.devices):
        raise RuntimeError(f"expected {len(handle.devices)} shards, found {len(shards)}")
    part = tuple(shards[0].shape)
    counts = [1] * len(part) if handle.replicated else list(handle.counts)
    full = tuple(n * c for n, c in zip(part, counts, strict=True))
    wanted = full if shape is None else tuple(shape)
    if len(wanted) != len(full) or any(
        not full[d] - counts[d] < n <= full[d] for d, n in enumerate(wanted)
    ):
        raise RuntimeError(f"shards of {list(part)} as {sharding} do not make {list(wanted)}")
    whole = torch.empty(full, dtype=shards[0].dtype)
    for (_, start, size), data in zip(handle.boxes(full), shards, strict=True):
        whole[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))] = data
    whole = whole[tuple(slice(0, n) for n in wanted)].contiguous().to("xla")
    spec = [None] * whole.dim() if handle.replicated else sharding.spec
    return spmd.mark_sharding(whole, sharding.mesh, even_spec(whole, sharding.mesh, spec))


def _xla_set_auto_sharding() -> None:
    """The compiler places what is not marked in any case."""
    _auto["on"] = True


def _xla_get_auto_sharding() -> bool:
    return _auto["on"]


def _xla_get_spmd_config_is_locked() -> bool:
    """Never: a graph is SPMD where a tensor in it is marked."""
    return False
