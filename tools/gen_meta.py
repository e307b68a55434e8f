"""Writes the table of PyTorch's structured meta functions for the rows of our op table.

usage: gen_meta.py --torch TORCH_DIR --out build/gen/meta_rows.inc

The file has PARTS sections, each compiled by a translation unit of its own
(src/torch/meta_rows_N.cpp).

Reads the overload names that src/ops registers and torch's own native_functions.yaml, and emits one
line for each row that PyTorch has a structured shape function for: `at::meta::<op>`, eager's own
promotion, broadcasting and error text. Rows with a type rule of their own come out too; the
registry prefers the row's. So do the ones that COSTLY names, which have no row.

A row also says whether the structured function is a TensorIterator: those cast into out=, the
others want the result's own dtype there, but for what the op's row says (Row::out).
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

PARTS = 3
# Host ops (src/torch/host_op.cpp) whose kernels are too slow, or too trusting of their integers, to
# learn the result's type from a run on made-up values. Each pattern has to name one.
COSTLY = (r"_?linalg_\w*[a-z0-9]", "lu_unpack")
ROOT = Path(__file__).resolve().parent.parent


def row_names() -> list[str]:
    """Overloads of the op table without "aten::", in file order, each once."""
    names: dict[str, None] = {}
    for path in sorted((ROOT / "src" / "ops").rglob("*.cpp")):
        for name in re.findall(r'"aten::([a-zA-Z0-9_]+(?:\.[a-zA-Z0-9_]+)?)"', path.read_text()):
            names[name] = None
    if not names:
        raise SystemExit("gen_meta: no op found in src/ops")
    return list(names)


@dataclass(frozen=True)
class Structured:
    """A functional overload with a structured kernel."""

    args: str  # of its schema
    delegate: str  # its out= overload


def structured(yaml: Path) -> tuple[dict[str, Structured], set[str]]:
    """Functional overloads by name, and the out= overloads that are TensorIterators."""
    out: dict[str, Structured] = {}
    iterators: set[str] = set()
    func = args = ""
    for line in yaml.read_text().splitlines():
        if m := re.match(r"- func: ([\w.]+)\((.*)\) ->", line):
            func, args = m.groups()
        elif line.strip().startswith("structured_delegate:") and func:
            out[func] = Structured(args, line.split(":")[1].strip())
        elif line.strip().startswith("structured_inherits: TensorIteratorBase"):
            iterators.add(func)
    return out, iterators


def costly(known: dict[str, Structured], names: list[str]) -> list[str]:
    """What COSTLY names and no row does."""
    found = []
    for pattern in COSTLY:
        matches = [n for n in known if re.fullmatch(pattern, n)]
        if not matches:
            raise SystemExit(f"gen_meta.py: COSTLY has {pattern!r}, which names no structured op")
        found += [n for n in matches if n not in names]
    return sorted(found)


def line(name: str, row: Structured, iterators: set[str]) -> str:
    base = name.split(".")[0]
    function = base + ("_symint" if "SymInt" in row.args else "")
    ops = name.replace(".", "_")
    kernel = "kIterates" if row.delegate in iterators else "kExact"
    return f'META_ROW("aten::{name}", at::_ops::{ops}::schema, at::meta::{function}, {kernel})'


def section(
    part: int, names: list[str], known: dict[str, Structured], iterators: set[str]
) -> list[str]:
    """One part: the headers it needs, then its rows."""
    bases = sorted({n.split(".")[0] for n in names})
    headers = [
        f"#include <ATen/ops/{b}_{kind}.h>" for b in bases for kind in ("ops", "meta_dispatch")
    ]
    rows = [line(n, known[n], iterators) for n in names]
    guard = f"#if META_PART == {part}"
    return [guard, "#ifdef META_HEADERS", *headers, "#else", *rows, "#endif", "#endif"]


def main() -> None:
    """Reads the arguments and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    yaml = a.torch.parent / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    known, iterators = structured(yaml)
    names = [n for n in row_names() if n in known]
    names += costly(known, names)
    lines = [text for p in range(PARTS) for text in section(p, names[p::PARTS], known, iterators)]
    write(a.out, lines)


def write(path: Path, lines: list[str]) -> None:
    """Keeps the file's time where nothing changed, so that nothing is built again."""
    text = "\n".join(lines) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


if __name__ == "__main__":
    main()
