"""Prints lines a room, and the files and functions that outgrow the house limits. Only warns."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES, FUNCTION_LINES = 500, 40
# A function's first line: starts in column 0 (or a class's 2), ends by opening a body.
OPENS = re.compile(r"^ {0,2}[\w:<>~&*][^;={}]*\)[^;={}]*\{$")


def long_functions(lines: list[str]) -> list[tuple[int, int]]:
    """(line number, length) of functions that are too long, by their closing brace's indent."""
    found = []
    for start, line in enumerate(lines):
        if not OPENS.match(line) or line.lstrip().startswith(("namespace", "if", "for", "switch")):
            continue
        closing = " " * (len(line) - len(line.lstrip())) + "}"
        length = next((n for n, x in enumerate(lines[start:], 1) if x.startswith(closing)), 0)
        if length > FUNCTION_LINES:
            found.append((start + 1, length))
    return found


def main() -> None:
    """Prints the report."""
    rooms: dict[str, int] = {}
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        lines = path.read_text().splitlines()
        name = path.relative_to(ROOT).as_posix()
        room = path.relative_to(ROOT / "src").parts[0]
        rooms[room] = rooms.get(room, 0) + len(lines)
        if len(lines) > FILE_LINES:
            print(f"warning: {name} has {len(lines)} lines, over {FILE_LINES}")
        for line, length in long_functions(lines):
            print(f"warning: {name}:{line} is a function of {length} lines, over {FUNCTION_LINES}")
    print("lines: " + ", ".join(f"{room} {count}" for room, count in sorted(rooms.items())))


if __name__ == "__main__":
    main()
