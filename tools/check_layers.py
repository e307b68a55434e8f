"""Fails where a room of src/ includes one that is not below it, or torch where it is unknown.

The table is the picture in docs/life-of-an-op.md; adding an arrow is a decision, not a fix.
"""

import re
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"

# room -> the rooms right below it; what those may include it may include too.
ARROWS: dict[str, tuple[str, ...]] = {
    "base": (),
    "probe": ("base",),
    "ir": ("base",),
    "hlo": ("ir",),
    "shard": ("base",),
    "ops": ("ir", "hlo", "shard"),
    "lower": ("ops",),
    "pjrt": ("base", "probe"),
    "client": ("ir", "pjrt", "shard", "probe"),
    "exec": ("lower", "client"),
    "torch": ("exec",),
    "bind": ("torch",),
}
SEES_TORCH = ("torch", "bind")
TORCH_HEADER = re.compile(r"(torch|ATen|c10|caffe2|pybind11)/|Python\.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def below(room: str) -> set[str]:
    """The rooms that a room may include, itself included."""
    return {room}.union(*(below(lower) for lower in ARROWS[room]))


def complaints(path: Path) -> list[str]:
    """What is wrong with one file's includes."""
    room, found = path.relative_to(SRC).parts[0], []
    if room not in ARROWS:
        return [f"{path}: no such room as src/{room}: tools/check_layers.py lists them"]
    allowed = below(room)
    for quote, header in INCLUDE.findall(path.read_text()):
        target = header.partition("/")[0]
        ours = quote == '"' and target in ARROWS
        if ours and target not in allowed:
            found.append(f"{path}: {room} may not include {header}: {target} is not below it")
        if not ours and TORCH_HEADER.match(header) and room not in SEES_TORCH:
            found.append(f"{path}: {room} may not include {header}: torch is for {SEES_TORCH}")
    return found


def unlisted(files: list[Path]) -> list[str]:
    """Sources that cmake/sources.cmake does not name: no build would see them."""
    listed = set((SRC.parent / "cmake/sources.cmake").read_text().replace(")", " ").split())
    names = [p.relative_to(SRC.parent).as_posix() for p in files if p.suffix == ".cpp"]
    return [f"{name}: not in cmake/sources.cmake" for name in names if name not in listed]


# What is done about compilers' mistakes is in one place (src/hlo/workarounds.h says why).
MISTAKE = re.compile(r"Mistake::k\w+")
WORKAROUNDS = {
    "base/capabilities.h",
    "hlo/workarounds.cpp",
    "hlo/workarounds.h",
    "client/pjrt_client.cpp",
    "client/platforms.cpp",
}


def misplaced_workarounds(path: Path) -> list[str]:
    """Code that asks for a compiler's mistake where workarounds do not belong."""
    if path.relative_to(SRC).as_posix() in WORKAROUNDS:
        return []
    return [
        f"{path}: {m} is asked for outside of src/hlo/workarounds.cpp"
        for m in MISTAKE.findall(path.read_text())
    ]


def main() -> int:
    """Checks every source file; 1 where one complains."""
    files = sorted(p for p in SRC.rglob("*") if p.suffix in (".h", ".cpp", ".inc"))
    found = [line for path in files for line in complaints(path)] + unlisted(files)
    found += [line for path in files for line in misplaced_workarounds(path)]
    print("\n".join(found) if found else f"layers: {len(files)} files, all arrows point down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
