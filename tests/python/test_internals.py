"""What is taken of PyTorch's internals stands in one table, and is there in the torch that runs."""

import ast
import re
from pathlib import Path

import torch

from torch_pjrt import _compat

ROOT = Path(__file__).resolve().parents[2]


def dotted(text: str) -> bool:
    return text.startswith("torch.") and all(part.isidentifier() for part in text.split("."))


def named(node: ast.AST) -> list[str]:
    """Names of torch that a piece of source says: imports, attributes, texts."""
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [f"{node.module}.{a.name}" for a in node.names]
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    if isinstance(node, ast.Attribute):
        return [ast.unparse(node)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def private() -> dict[str, str]:
    """Private names of torch that the package uses, and a file that does."""
    used: dict[str, str] = {}
    for path in (ROOT / "torch_pjrt").glob("*.py"):
        if path.stem != "_compat":
            for node in ast.walk(ast.parse(path.read_text())):
                used |= {n: path.name for n in named(node) if dotted(n)}
    return {n: f for n, f in used.items() if re.search(r"\._(?!_)", n)}


def test_a_private_name_of_torch_that_is_used_stands_in_the_table():
    def known(name: str) -> bool:
        return any(name == row or name.startswith(f"{row}.") or row.startswith(f"{name}.")
                   for row in _compat.INTERNALS)  # fmt: skip

    assert {n: f for n, f in private().items() if not known(n)} == {}


def test_the_table_has_no_name_that_nobody_uses():
    used = private()
    idle = [r for r in _compat.INTERNALS if not any(n == r or n.startswith(f"{r}.") for n in used)]
    assert idle == []


def test_the_torch_that_runs_has_them_all():
    assert _compat.missing() == []


def test_a_name_that_is_gone_is_found(monkeypatch):
    monkeypatch.delattr(torch, "_register_device_module")
    gone = ("torch.nothing.such", "torch._register_device_module")
    monkeypatch.setattr(_compat, "INTERNALS", (*_compat.INTERNALS, "torch.nothing.such"))
    assert set(_compat.missing()) == set(gone)
