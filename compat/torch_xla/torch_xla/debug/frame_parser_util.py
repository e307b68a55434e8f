"""Reads lines of Python frames that graphs carry in their texts."""

import logging
import re
from collections import Counter
from collections.abc import Iterable

logger = logging.getLogger(__name__)
_FRAME = re.compile(r"#\s*(?P<file>\S+):(?P<line>\d+)")


def parse_frame_content(text: str) -> str | None:
    """`file:line` of a line of a graph's text; None where it has none."""
    found = _FRAME.search(text)
    return f"{found['file']}:{found['line']}" if found else None


def parse_frames(lines: Iterable[str]) -> list[str]:
    """Of all lines that have one."""
    return [f for f in map(parse_frame_content, lines) if f]


def process_frames(lines: Iterable[str]) -> Counter[str]:
    """How often each comes."""
    return Counter(parse_frames(lines))


def create_report(path: str) -> str:
    """What process_frames counts in the file, the most frequent first."""
    with open(path) as f:
        return "\n".join(f"{n} {where}" for where, n in process_frames(f).most_common())
