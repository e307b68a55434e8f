"""`torch.ops.xla.dynamo_mark_sharding`: marks a tensor inside torch.compile."""

import ast

import torch

from torch_pjrt import spmd

from .. import _XLAC
from ._library import define


def _mark(
    t: torch.Tensor, device_ids: list[int], mesh_shape: list[int], axis_names: str, spec: str
) -> torch.Tensor:
    names = ast.literal_eval(axis_names) if axis_names and axis_names != "None" else None
    mesh = spmd.Mesh(device_ids, mesh_shape, names)
    return spmd.mark_sharding(t, mesh, _XLAC.even_spec(t, mesh, ast.literal_eval(spec)))


define(
    "dynamo_mark_sharding(Tensor t, int[] device_ids, int[] mesh_shape, str axis_names, "
    "str partition_spec) -> Tensor",
    _mark,
)
