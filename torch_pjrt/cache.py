"""Compiled programs kept across processes: where they lie, how many, and how to be rid of them.

On by default. `TORCH_PJRT_CACHE` (or `XLA_PERSISTENT_CACHE_PATH`) names the folder or turns it off;
`use` does so from Python. A program is found again only where everything that it was made from is
the same: graph, torch, torch_pjrt, plugin file, options, devices, processor.
"""

import os
from dataclasses import dataclass

from . import _C, metrics

__all__ = ["Entry", "Stats", "clear", "entries", "path", "prune", "stats", "use", "verify"]


@dataclass(frozen=True)
class Entry:
    """One stored program. `where` is the line that first wanted it, in its own process."""

    name: str
    bytes: int
    used_ns: int  # since 1970
    nodes: int
    compile_ms: int
    where: str
    outputs: str


@dataclass(frozen=True)
class Stats:
    """The folder now, and what this process had of it."""

    path: str | None
    read_only: bool
    programs: int
    bytes: int
    limit_bytes: int
    hits: int
    misses: int
    corrupt: int


def path() -> str | None:
    """The folder; None where programs are not kept."""
    return _C.cache_place()[0] or None


def use(
    folder: str | os.PathLike[str] | None, *, read_only: bool = False, shared: bool = False
) -> None:
    """Keeps programs in another folder from now on, or nowhere. Call it before the first sync.

    A folder that another user owns or may write to is not used: its programs are run as machine
    code. With `shared` it is trusted all the same, read-only.

    Programs are told apart by the plugin's bytes once the client starts with a folder; a client
    that started without one tells plugins apart by path, size and time.
    """
    _, _, limit = _C.cache_place()
    path = "" if folder is None else os.fspath(folder)
    _C.set_cache_place(path, read_only, limit or _limit(), shared)


def _limit() -> int:
    """TORCH_PJRT_CACHE_MB in bytes."""
    row = next(row for row in _C.flags() if row[0] == "TORCH_PJRT_CACHE_MB")
    return int(row[3]) << 20


def stats() -> Stats:
    """Size of the folder, and this process's hits and misses since `metrics.clear`."""
    folder, read_only, limit = _C.cache_place()
    programs, size = _C.cache_size(folder) if folder else (0, 0)
    seen = metrics.counters()
    hits, misses, corrupt = (
        seen.get(f"PersistentCache{kind}", 0) for kind in ("Hit", "Miss", "Corrupt")
    )
    return Stats(folder or None, read_only, programs, size, limit, hits, misses, corrupt)


def entries() -> list[Entry]:
    """All stored programs, the longest unused first."""
    folder = path()
    return [Entry(*row) for row in _C.cache_list(folder)] if folder else []


def verify() -> list[tuple[str, str]]:
    """(file, what is wrong) for every file that would not be used. `prune` removes them."""
    folder = path()
    return _C.cache_verify(folder) if folder else []


def prune(max_bytes: int | None = None) -> tuple[int, int]:
    """Removes broken files, leftovers, and the longest unused programs above `max_bytes`.

    By default the limit is TORCH_PJRT_CACHE_MB. Gives how many files and bytes went.
    """
    folder, _, limit = _C.cache_place()
    if not folder:
        return (0, 0)
    files = size = 0
    for name, _what in _C.cache_verify(folder):
        file = os.path.join(folder, name)
        try:
            length = os.path.getsize(file)
            os.unlink(file)
        except FileNotFoundError:  # another process was faster
            continue
        files, size = files + 1, size + length
    more = _C.cache_evict(folder, limit if max_bytes is None else max_bytes)
    return (files + more[0], size + more[1])


def clear() -> int:
    """Removes all stored programs; gives how many files went. Programs in memory stay."""
    folder = path()
    return _C.cache_clear(folder)[0] if folder else 0
