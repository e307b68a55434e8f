"""Tensors of two runs, step by step, in two folders."""

import os
from pathlib import Path
from typing import Any

import torch

_state: dict[str, Any] = {"folder": None, "count": 0}


def configure(save_dir: Any) -> None:
    """Where save() writes from now on; its numbers begin again."""
    _state.update(folder=Path(save_dir), count=0)


def save(name: str | None, tensor: torch.Tensor) -> None:
    """Writes the value under the next number and `name`; nothing before configure()."""
    if _state["folder"] is None:
        return
    _state["folder"].mkdir(parents=True, exist_ok=True)
    stem = f"{_state['count']:04d}" + (f".{name}" if name else "")
    torch.save(tensor.detach().cpu(), _state["folder"] / f"{stem}.pt")
    _state["count"] += 1


def compare_tensors(
    tensor1: torch.Tensor, tensor2: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8
) -> str:
    """Empty where they are close, else what differs."""
    if tensor1.shape != tensor2.shape:
        return f"shapes {tuple(tensor1.shape)} and {tuple(tensor2.shape)}"
    if torch.allclose(tensor1, tensor2, rtol=rtol, atol=atol):
        return ""
    difference = (tensor1.double() - tensor2.double()).abs().max().item()
    return f"the largest difference is {difference:g}"


def tensor_file_compare(path1: Any, path2: Any, rtol: float = 1e-5, atol: float = 1e-8) -> str:
    return compare_tensors(torch.load(path1), torch.load(path2), rtol, atol)


def compare(dir1: Any, dir2: Any, rtol: float = 1e-5, atol: float = 1e-8) -> list[str]:
    """A line for each value that only one folder has, or that differs."""
    names1, names2 = (set(os.listdir(d)) for d in (dir1, dir2))
    lines = [f"{n}: in one folder only" for n in sorted(names1 ^ names2)]
    for n in sorted(names1 & names2):
        found = tensor_file_compare(Path(dir1, n), Path(dir2, n), rtol, atol)
        lines += [f"{n}: {found}"] if found else []
    return lines
