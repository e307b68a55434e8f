"""`python -m torch_pjrt cache {ls,verify,prune,clear}`."""

import argparse
import time

from . import cache

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words after `cache`."""
    parser.add_argument("action", choices=("ls", "verify", "prune", "clear"))
    parser.add_argument(
        "--max-mb", type=int, help="prune: how much may stay; TORCH_PJRT_CACHE_MB by default"
    )


def _size(n: int) -> str:
    return f"{n / 2**20:.1f} MB" if n >= 2**20 else f"{n / 2**10:.1f} KB"


def _ls() -> None:
    found = cache.entries()
    for e in found:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(e.used_ns / 1e9))
        print(
            f"{e.name[:12]}  {_size(e.bytes):>9}  used {used}  {e.nodes:>5} nodes  "
            f"compiled in {e.compile_ms} ms  {e.where}"
        )
    s = cache.stats()
    print(f"{len(found)} programs, {_size(s.bytes)} of {_size(s.limit_bytes)}, in {s.path}")


def _verify() -> int:
    wrong = cache.verify()
    for name, what in wrong:
        print(f"{name}: {what}")
    print(f"{cache.stats().programs} programs, {len(wrong)} files to be pruned, in {cache.path()}")
    return 1 if wrong else 0


def run(arguments: argparse.Namespace) -> int:
    """Does what was asked; the exit status."""
    if cache.path() is None:
        print("programs are not kept: TORCH_PJRT_CACHE is off")
        return 0
    if arguments.action == "ls":
        _ls()
    elif arguments.action == "verify":
        return _verify()
    elif arguments.action == "prune":
        limit = None if arguments.max_mb is None else arguments.max_mb << 20
        files, size = cache.prune(limit)
        print(f"removed {files} files, {_size(size)}, from {cache.path()}")
    else:
        print(f"removed {cache.clear()} files from {cache.path()}")
    return 0
