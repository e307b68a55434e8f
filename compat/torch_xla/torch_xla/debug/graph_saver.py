"""The graph of pending tensors in a file."""

from typing import Any

import torch_pjrt


def save_tensors_graph(folder: str, name: str, tensors: list[Any]) -> None:
    """Writes name.txt, name.dot and name.mlir."""
    from pathlib import Path

    g = torch_pjrt.graph.of(tensors)
    for ending in (".txt", ".dot", ".mlir"):
        g.save(Path(folder) / f"{name}{ending}")
