"""The flag table: every environment variable that torch_pjrt reads, each once, at first use."""

from dataclasses import dataclass

from . import _C

__all__ = ["Flag", "table", "text"]


@dataclass(frozen=True)
class Flag:
    """One row. `in_key`: another value means other programs. `allowed`: its values, in words."""

    name: str
    type: str
    default: str
    value: str
    help: str
    in_key: bool
    allowed: str


def table() -> list[Flag]:
    """All flags with their values in this process."""
    return [Flag(*row) for row in _C.flags()]


def text() -> str:
    """The table for people."""
    rows = table()
    width = max(len(f.name) for f in rows)
    lines = [f"{'flag':<{width}}  {'type':<5} {'value':<10} help"]
    for f in rows:
        notes = [f"default {f.default}"] if f.default else []
        notes += ["in the compile key"] if f.in_key else []
        tail = f" ({'; '.join(notes)})" if notes else ""
        lines.append(f"{f.name:<{width}}  {f.type:<5} {f.value or '-':<10} {f.help}{tail}")
    return "\n".join(lines)
