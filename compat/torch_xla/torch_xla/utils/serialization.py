"""Saving with the tensors in files of their own: a folder beside the file."""

import os
import shutil
from typing import Any

import torch

from ..core import xla_model as xm
from ..core.xla_model import ToXlaTensorArena


class TensorReference:
    """Where a tensor is: its number among the files of the folder."""

    def __init__(self, tid: int) -> None:
        self.tid = tid


def _folder(path: Any) -> str:
    return f"{os.fspath(path)}.tensors"


def _file(folder: str, tid: int) -> str:
    return os.path.join(folder, f"tensor_{tid}.pt")


def save(data: Any, path: Any, master_only: bool = True, global_master: bool = False) -> None:
    """`data` with references in `path`, tensors on the CPU in `path`.tensors."""
    if master_only and not xm.is_master_ordinal(local=not global_master):
        xm.rendezvous("torch_xla.utils.serialization.save")
        return
    folder = _folder(path)
    if os.path.isdir(folder):
        shutil.rmtree(folder)
    os.makedirs(folder)

    def write(tensors: list[torch.Tensor]) -> list[TensorReference]:
        for i, t in enumerate(tensors):
            torch.save(t.cpu(), _file(folder, i))
        return [TensorReference(i) for i in range(len(tensors))]

    def selects(x: Any) -> bool:
        return isinstance(x, torch.Tensor) and xm.is_xla_tensor(x)

    torch.save(ToXlaTensorArena(write, selects).transform(data), path)
    if master_only:
        xm.rendezvous("torch_xla.utils.serialization.save")


def load(path: Any) -> Any:
    """What save() wrote, with its tensors on the CPU."""
    from .utils import for_each_instance_rewrite

    folder = _folder(path)
    return for_each_instance_rewrite(
        torch.load(path, weights_only=False),
        lambda x: isinstance(x, TensorReference),
        lambda r: torch.load(_file(folder, r.tid)),
    )
