"""Pictures of who holds what."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from torch_pjrt import spmd

from . import xla_sharding
from .xla_sharding import *  # noqa: F403
from .xla_sharding import Mesh, unwrap_sharded_tensor

RICH_ENABLED = find_spec("rich") is not None
__all__ = [
    *xla_sharding.__all__, "RICH_ENABLED", "visualize_sharding", "visualize_tensor_sharding",
]  # fmt: skip


def visualize_tensor_sharding(t: torch.Tensor, **kwargs: Any) -> str:
    """Prints and gives the picture of a tensor."""
    picture = spmd.visualize(unwrap_sharded_tensor(t))
    print(picture)
    return picture


def visualize_sharding(sharding: str, **kwargs: Any) -> str:
    """Prints and gives the picture of a sharding's text, `{devices=[2,4]0,1,...}`."""
    grid, replicas = _read(sharding)
    mesh = Mesh(grid.reshape(-1), grid.shape)
    cut = range(len(grid.shape) - replicas)
    shown = spmd.mark_sharding(torch.zeros([grid.shape[d] for d in cut]), mesh.ours, tuple(cut))
    return visualize_tensor_sharding(shown)


def _read(sharding: str) -> tuple[Any, int]:
    """Devices by tile, and whether the last dimension is of replicas."""
    import re

    found = re.fullmatch(r"\{devices=\[([\d,]+)\]([\d,]+)(.*)\}", sharding)
    if found is None:
        from ...runtime import global_runtime_device_count

        return np.arange(global_runtime_device_count())[None], 1
    sizes, ids, rest = found.groups()
    grid = np.array([int(i) for i in ids.split(",")]).reshape([int(n) for n in sizes.split(",")])
    return grid, int("last_tile_dim_replicate" in rest)
