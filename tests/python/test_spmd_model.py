"""Meshes, specs and tiles against a numpy model of which device holds which elements. No device."""

import itertools
import random

import numpy as np
import pytest

from torch_pjrt import _C
from torch_pjrt.spmd import Mesh


def holders(mesh: Mesh, spec, dims) -> dict[int, np.ndarray]:
    """By device: a mask of the elements it holds, worked out index by index from the definition."""
    grid = mesh.get_logical_mesh()
    held = {d: np.zeros(dims, bool) for d in mesh.device_ids}
    axis_of = {name: i for i, name in enumerate(mesh.axis_names)}
    for place in np.ndindex(*grid.shape):
        region = []
        for size, axes in zip(dims, spec, strict=True):
            names = () if axes is None else (axes if isinstance(axes, tuple) else (axes,))
            part, parts = 0, 1
            for name in names:  # the first is the major one
                part = part * grid.shape[axis_of[name]] + place[axis_of[name]]
                parts *= grid.shape[axis_of[name]]
            region.append(slice(size // parts * part, size // parts * (part + 1)))
        held[int(grid[place])][tuple(region)] = True
    return held


def specs_of(names, rank):
    """Every way to put axes (each at most once, in any order) on `rank` dimensions."""
    for count in range(len(names) + 1):
        for chosen in itertools.permutations(names, count):
            for dims in itertools.product(range(rank), repeat=count):
                spec = [
                    tuple(a for a, d in zip(chosen, dims, strict=True) if d == i)
                    for i in range(rank)
                ]
                yield tuple(None if not a else a[0] if len(a) == 1 else a for a in spec)


MESHES = {
    "8": Mesh(range(8), (8,), ("d",)),
    "2x4": Mesh(range(8), (2, 4), ("x", "y")),
    "4x2": Mesh(range(8), (4, 2), ("x", "y")),
    "4x1": Mesh(range(4), (4, 1), ("x", "y")),
    "2x2x2": Mesh(range(8), (2, 2, 2), ("x", "y", "z")),
    "reversed": Mesh(range(7, -1, -1), (2, 4), ("x", "y")),
    "shuffled": Mesh([3, 0, 6, 1, 7, 2, 5, 4], (4, 2), ("x", "y")),
    "other devices": Mesh([5, 2, 9, 4], (2, 2), ("x", "y")),
    "of one axis": Mesh(range(8), (2, 4), ("x", "y")).sub(x=1),
}


@pytest.mark.parametrize("name", MESHES)
def test_each_device_holds_the_elements_that_the_model_says(name):
    mesh, dims = MESHES[name], (8, 16)
    for spec in set(specs_of(mesh.axis_names, 2)):
        model = holders(mesh, spec, dims)
        s = mesh.sharding(spec)
        for device, start, size in s.boxes(dims):
            mask = np.zeros(dims, bool)
            mask[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))] = True
            assert np.array_equal(mask, model[device]), (spec, device)


@pytest.mark.parametrize("name", MESHES)
def test_two_specs_have_one_text_exactly_where_all_devices_hold_the_same(name):
    mesh, dims = MESHES[name], (8, 16)
    by_text: dict[str, bytes] = {}
    by_model: dict[bytes, str] = {}
    for spec in sorted(set(specs_of(mesh.axis_names, 2)), key=repr):
        model = holders(mesh, spec, dims)
        key = b"".join(model[d].tobytes() for d in sorted(model))
        text = mesh.sharding(spec).text
        assert by_text.setdefault(text, key) == key, spec
        assert by_model.setdefault(key, text) == text, spec


def walked(text: str, count: int) -> list[int]:
    """The devices of `{devices=[..]<=[..]T(..)}` in order, as XLA reads it."""
    body = text[text.index("]") + 1 : -1].replace(" last_tile_dim_replicate", "")
    if not body.startswith("<="):
        return [int(d) for d in body.split(",")]
    sizes = [int(n) for n in body[3 : body.index("]")].split(",")]
    grid = np.arange(count).reshape(sizes)
    if "T" in body:
        grid = grid.transpose(
            [int(n) for n in body[body.index("(") + 1 : body.index(")")].split(",")]
        )
    return [int(d) for d in grid.reshape(-1)]


@pytest.mark.parametrize("name", MESHES)
def test_the_text_says_what_the_tiles_are(name):
    mesh = MESHES[name]
    for spec in set(specs_of(mesh.axis_names, 2)):
        s = mesh.sharding(spec)
        if s.replicated:
            assert s.gspmd == "{replicated}"
            continue
        tiles = [int(n) for n in s.gspmd[len("{devices=[") : s.gspmd.index("]")].split(",")]
        assert tiles == [*s.counts, *([s.replicas] if s.replicas > 1 else [])]
        assert walked(s.gspmd, mesh.size()) == list(s.order)


def test_what_a_plugin_tells_is_read_as_xla_means_it():
    """Random OpSharding messages of both forms, written by hand."""

    def varint(n: int) -> bytes:
        out = b""
        while n >= 0x80:
            out, n = out + bytes([n & 0x7F | 0x80]), n >> 7
        return out + bytes([n])

    def packed(field: int, numbers) -> bytes:
        body = b"".join(map(varint, numbers))
        return bytes([field << 3 | 2]) + varint(len(body)) + body

    rng = random.Random(0)
    for _ in range(200):
        grid = rng.choice([(8,), (2, 4), (4, 2), (2, 2, 2)])
        perm = rng.sample(range(len(grid)), len(grid))
        order = np.arange(8).reshape(grid).transpose(perm).reshape(-1)
        dims = rng.choice([(8, 1), (4, 2), (2, 4), (1, 8)])
        partial = rng.random() < 0.5
        message = b"\x08\x03" + packed(3, dims)
        if rng.random() < 0.5:
            message += packed(9, grid) + packed(10, perm)
        else:
            message += packed(4, order)
        counts, found, replicas = _C.read_op_sharding(
            message + (b"\x30\x01" if partial else b""), 8
        )
        want = order.reshape(-1, dims[1]) if partial else order.reshape(-1, 1)
        if partial and dims[0] == 1:
            assert (counts, replicas) == ([], 8)
            continue
        assert counts == list(dims[:1] if partial else dims)
        assert replicas == want.shape[1]
        assert list(found) == [int(d) for row in want for d in sorted(row)]


def test_a_made_up_mesh_serves_a_sharding_that_no_mesh_has():
    s = Mesh([6, 1, 3, 0], (4,), ("only_here",)).sharding(("only_here", None))
    assert s.over([0, 1, 3, 6], [("d", 4)], 2) is None
    top, attribute = s.spelled(2, True)
    assert (
        "device_ids=[3, 1, 2, 0]" in top and 'sdy.sharding<@mesh, [{"only_here"}, {}]>' in attribute
    )
