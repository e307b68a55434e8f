"""`python -m torch_pjrt fit script.py --topology v5e:2x2`: says whether the script fits there.

The script runs unchanged on the CPU plugin, which is told to record as for an accelerator; each
program that it made is then compiled ahead of time for the topology.
"""

import argparse
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from . import _C, aot, plugins

__all__ = ["add_arguments", "run"]

_STEM = re.compile(r"(?P<number>\d+)-(?P<where>.*)-(?P<ops>\d+)ops-(?P<key>[0-9a-f]+)")
_RUNS, _HOST = "runs.json", "host.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words after `fit`."""
    _add_options(parser)
    parser.add_argument("script", help="a Python file, run as it is")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="its arguments (-- before them)")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topology", help="v5e:2x2, h100:8, ...: docs/aot.md has them all")
    parser.add_argument("--plugin", help="whose topology it is, where the table has it not")


def run(arguments: argparse.Namespace) -> int:
    """0: all programs fit; 1: one does not, or cannot be compiled; 2: wrong words, a failed script.

    Options may stand behind the script, too; what stands behind "--" is the script's.
    """
    own, rest = arguments.rest, []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    more = argparse.ArgumentParser(prog="fit", add_help=False)
    _add_options(more)
    more.parse_known_args(own, arguments)
    given = [*more.parse_known_args(own)[1], *rest]
    try:
        if not arguments.topology:
            raise ValueError("--topology is missing: v5e:2x2, h100:8, ... (docs/aot.md)")
        if not Path(arguments.script).is_file():
            raise ValueError(f"no script '{arguments.script}'")
        topology = aot.Topology(arguments.topology, arguments.plugin)
    except (ValueError, RuntimeError) as error:
        print(f"fit: {error}", file=sys.stderr)
        return 2
    return _fit(topology, arguments.script, given)


def _fit(topology: aot.Topology, script: str, given: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="torch_pjrt_fit") as folder:
        status = _run_script(folder, topology, script, given)
        found, host = list(_recorded(Path(folder))), _on_host(Path(folder))
    if status:
        print(f"fit: the script ended with status {status}", file=sys.stderr)
    if not found:
        print("fit: the script made no program on device xla", file=sys.stderr)
        return 2
    print(_head(topology))
    fits = [line.print(topology) for line in found]
    if host:
        print(f"on the host, which cuts the graph: {host}")
    return 2 if status else 0 if all(fits) else 1


def _head(topology: aot.Topology) -> str:
    t = topology.target
    room = f", {aot.size(t.memory)} each" if t.memory else ""
    title = f"{t.topology}: {len(topology.kinds)} devices of kind {topology.kinds[0]}{room}"
    columns = "".join(f"{name:>{width}}" for name, width in _COLUMNS)
    return f"{title}\nbytes a device, by program, in the order of their compiles\n{columns}  at"


_COLUMNS = (
    ("ops", 6), ("runs", 6), ("needs", 10), ("arguments", 11), ("outputs", 10), ("in place", 10),
    ("temporaries", 13), ("code", 10),
)  # fmt: skip


@dataclass(frozen=True)
class _Recorded:
    """A program that the script made: the line that synced it first, its ops, how often it ran."""

    where: str
    ops: int
    runs: int
    hlo: str

    def print(self, topology: aot.Topology) -> bool:
        """A line of the table. Whether it fits, as far as that is known."""
        head = f"{self.ops:>6}{self.runs:>6}"
        try:
            program = topology.compile(self.hlo)
        except (RuntimeError, NotImplementedError, ValueError) as error:
            kind = "out of memory" if isinstance(error, torch.OutOfMemoryError) else "refused"
            print(f"{head}  {self.where}: {kind}: {' '.join(str(error).split())}")
            return False
        if (m := program.memory) is None:
            print(f"{head}  {self.where}: the plugin does not tell its memory")
            return True
        sizes = (m.total, m.arguments, m.outputs, m.aliased, m.temporaries, m.code)
        cells = "".join(
            f"{aot.size(n):>{w}}" for n, (_, w) in zip(sizes, _COLUMNS[2:], strict=True)
        )
        verdict = {True: "fits", False: "DOES NOT FIT", None: ""}[m.fits]
        moved = " ".join(f"{count} {kind}" for kind, count in program.collectives.items())
        print(f"{head}{cells}  {self.where}  {verdict}  {moved}".rstrip())
        return m.fits is not False


def _on_host(folder: Path) -> str:
    """Ops that have no lowering for those devices, and how often each was called."""
    path = folder / _HOST
    counts = json.loads(path.read_text()) if path.exists() else {}
    return ", ".join(f"{name} ({n} times)" for name, n in sorted(counts.items()))


def _recorded(folder: Path) -> Iterator[_Recorded]:
    """The programs in the folder; one whose text came before is left out."""
    runs_file = folder / _RUNS
    runs = json.loads(runs_file.read_text()) if runs_file.exists() else {}
    seen = set()
    for path in sorted(folder.glob("*.mlir")):
        hlo = path.read_text()
        if hlo in seen or not (m := _STEM.fullmatch(path.stem)):
            continue
        seen.add(hlo)
        file, _, line = m["where"].rpartition("_")
        where = f"{file}:{line}" if file else m["where"]
        yield _Recorded(where, int(m["ops"]), runs.get(m["key"], 0), hlo)


def _run_script(folder: str, topology: aot.Topology, script: str, given: list[str]) -> int:
    """Runs it in a process of its own; its exit status."""
    devices = len(topology.kinds)
    env = {k: v for k, v in os.environ.items() if k not in ("PJRT_DEVICE", "TORCH_PJRT_PLUGIN")}
    env.setdefault("TORCH_PJRT_CPU_DEVICES", str(devices))
    env |= {
        "TORCH_PJRT_DUMP_TO": folder,
        "TORCH_PJRT_TIERS": "off",  # every graph is a program, as on an accelerator
        "TORCH_PJRT_CACHE": "off",
    }
    command = [sys.executable, "-m", "torch_pjrt._fit", folder, topology.platform, script, *given]
    return subprocess.run(command, env=env, check=False).returncode  # noqa: S603


def _child(folder: str, platform: str, script: str, given: list[str]) -> None:
    """Runs the script as for that platform: its host ops cut, its forms of programs."""
    cpu = plugins.find_cpu()
    plugins.register([replace(cpu, mistakes=plugins.ALL_MISTAKES, recorded_for=platform)])
    sys.argv = [script, *given]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        runs = {p["key"][:8]: p["runs"] for p in _C.programs()} if _C.client_exists() else {}
        (Path(folder) / _RUNS).write_text(json.dumps(runs))
        host = {n: c for n, c in _C.counters().items() if n.startswith("aten::")}
        (Path(folder) / _HOST).write_text(json.dumps(host))


if __name__ == "__main__":
    _child(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
