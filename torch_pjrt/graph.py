"""Recorded graphs, to look at: the last one that was run, or what some tensors are waiting for."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from . import _C, _hlo

__all__ = ["Graph", "Node", "Program", "dump_to", "last", "of"]

_LINE = re.compile(
    r"%(?P<id>\d+) = (?P<name>[^\s({]+)(?:\((?P<args>[^)]*)\))?"
    r"(?: \{(?P<attrs>.*)\})? : (?P<type>.*?)(?:  # (?P<where>.*))?"
)


@dataclass(frozen=True)
class Node:
    """One node. `args` are operands ("%3", "%3.1") or a number; `where` is the user's line."""

    id: int
    name: str
    args: tuple[str, ...]
    attrs: str
    type: str
    where: str


@dataclass(frozen=True)
class Program:
    """What the plugin tells about a compiled graph; empty parts are what it does not tell."""

    optimized: str
    memory: dict[str, int]
    costs: dict[str, float]

    def __str__(self) -> str:
        lines = [f"{name}: {size} bytes" for name, size in self.memory.items()]
        lines += [f"{name}: {value:g}" for name, value in self.costs.items()]
        return "\n".join([*lines, self.optimized])


@dataclass(frozen=True)
class Graph:
    """One graph. `text` has a line a node, `hlo` is the StableHLO module, `dot` is for Graphviz."""

    nodes: int
    text: str
    hlo: str
    dot: str
    key: str

    def __str__(self) -> str:
        return self.text

    def __iter__(self) -> Iterator[Node]:
        for line in self.text.splitlines():
            if m := _LINE.fullmatch(line):
                args = tuple(a for a in (m["args"] or "").split(", ") if a)
                yield Node(
                    int(m["id"]), m["name"], args, m["attrs"] or "", m["type"], m["where"] or ""
                )

    @property
    def html(self) -> str:
        """A self-contained page with search."""
        from . import _report

        return _report.graph_page(self)

    def _repr_html_(self) -> str:
        from . import _report

        return _report.frame(self.html)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the form that the name's ending asks for: .txt, .dot, .mlir or .html; its path.

        Raises ValueError for another ending.
        """
        to = Path(path)
        forms = {".txt": "text", ".dot": "dot", ".mlir": "hlo", ".html": "html"}
        if to.suffix not in forms:
            raise ValueError(
                f"graph.save: expected a name in {', '.join(forms)}, found '{to.name}'"
            )
        to.write_text(getattr(self, forms[to.suffix]))
        return to

    def program(self) -> Program | None:
        """Memory, costs and the optimized form of the compiled program; None where it is gone."""
        found = _C.optimized_program(self.key)
        if found is None:
            return None
        kind, data, info = found
        return Program(_hlo.module_text(kind, data), info.get("memory", {}), info["costs"])


def last() -> Graph | None:
    """The graph of the last sync; None before the first."""
    found = _C.last_graph()
    return Graph(*found) if found else None


def of(tensors: torch.Tensor | Sequence[torch.Tensor]) -> Graph:
    """What would run to compute these tensors; nothing is run."""
    listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    return Graph(*_C.graph_of(listed))


@contextmanager
def dump_to(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Each graph compiled inside is written to the folder, as text, dot and StableHLO.

    Names say what a file holds: 0003-train.py_41-120ops-3fa2b1c9.mlir. TORCH_PJRT_DUMP_TO does the
    same for a whole process.
    """
    _C.set_dump_directory(str(folder))
    try:
        yield Path(folder)
    finally:
        _C.set_dump_directory("")
