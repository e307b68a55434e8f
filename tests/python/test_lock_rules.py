"""What the code under the spin lock of tensors' states may do (docs/threads.md)."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
TAKES = re.compile(r"lock_guard \w+\(state_lock\(\)\)|for_each_(alias|collected)\(.*\[")
# Each may take a mutex, run Python, or drop what does.
FORBIDDEN = re.compile(
    r"\bat::(?!Tensor\b)\w+\(|\bat::\w+::|\bc10::\w+\(|\bpy::|\bTHP|\.item\b|\.clone\(|\.to\("
    r"|make_shared|make_unique|\bnew \w|Node::make|\bcat\(|\bfail\("
)


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Each statement that runs under the lock: its line's number and text."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if not TAKES.search(line) or "void for_each" in line:
            continue
        depth = 1 if "for_each" in line and line.rstrip().endswith("{") else 0
        ends = 0 if depth else -1
        for j in range(i + 1, len(lines)):
            depth += lines[j].count("{") - lines[j].count("}")
            if depth <= ends:
                break
            yield j + 1, lines[j]


def violations(text: str) -> list[str]:
    """The statements under the lock that call what they may not."""
    return [f"{n}: {line.strip()}" for n, line in blocks(text) if FORBIDDEN.search(line)]


def test_nothing_calls_pytorch_or_allocates_objects_under_the_state_lock() -> None:
    files = [p for p in SOURCES.rglob("*") if p.suffix in {".cpp", ".h"}]
    seen = {p: list(blocks(p.read_text())) for p in files}
    assert sum(map(len, seen.values())) > 100  # the lock is found where it is taken
    found = {p.name: bad for p in files if (bad := violations(p.read_text()))}
    assert not found


@pytest.mark.parametrize(
    "statement", ["t = at::zeros({});", "a.made = std::make_shared<int>(1);", "x = y.to(z);"]
)
def test_a_call_under_the_lock_is_found(statement: str) -> None:
    taken = "{\n  std::lock_guard lock(state_lock());\n  " + statement + "\n}\n"
    assert len(violations(taken)) == 1
    walked = "  for_each_alias([&](Alias& a) {\n    " + statement + "\n  });\n"
    assert len(violations(walked)) == 1
    assert not violations("{\n  { std::lock_guard lock(state_lock());\n  }\n " + statement + "\n}")
