"""What a run shows of SPMD: where tensors are, and the collectives of the programs that ran."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from . import _C, _hlo
from ._explain import Place, place
from .graph import Graph
from .spmd import Sharding, _described, gathered_by_design

__all__ = ["Collective", "Gathered", "Sharded", "collectives", "gathered", "sharded"]

_BYTES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2, "c64": 8, "c128": 16}
_INSTRUCTION = re.compile(
    r"\s+(?:ROOT )?%(?P<name>\S+) = (?P<shape>\(.*?\)|\S+) (?P<op>[\w-]+)\((?P<args>[^)]*)\)"
    r"(?:  # (?P<meta>.*))?"
)
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
# What hands a parameter on as it is, or in another order or dtype.
_PASSES = {"copy", "bitcast", "reshape", "transpose", "convert", "get-tuple-element", "copy-done"}


@dataclass(frozen=True)
class Sharded:
    """Live tensors made at one line that are placed alike. `bytes`: on each device, of all."""

    place: Place
    type: str
    count: int
    bytes: int
    sharding: Sharding

    def __str__(self) -> str:
        s = self.sharding
        spec = ", ".join(repr(a) for a in s.spec)
        many = f"{self.count} x " if self.count > 1 else ""
        how = "whole on each device" if s.replicated else f"parts of {list(s.shard_shape)}"
        return f"{many}{self.type} of {self.place}: ({spec}) on {s.mesh}, {how}"


@dataclass(frozen=True)
class Collective:
    """Collectives of one kind, at one line, in one program that ran `runs` times."""

    kind: str
    line: str
    count: int
    bytes: int  # of the results, on each device, in one run
    key: str
    runs: int

    def __str__(self) -> str:
        many = f"{self.count} x " if self.count > 1 else ""
        return f"{many}{self.kind} of {self.bytes} bytes at {self.line or '(no line)'}"


@dataclass(frozen=True)
class Gathered:
    """An argument of a program that it gathers whole, each time it runs."""

    place: Place
    type: str
    bytes: int
    line: str
    key: str
    runs: int


def sharded() -> list[Sharded]:
    """The tensors that are on meshes now, the largest first."""
    found = []
    for at, dtype, dims, element, count, handle in _C.sharded_lines():
        s = _described(handle, tuple(dims), True)
        size = element * count
        for n in s.shard_shape:
            size *= n
        found.append(Sharded(place(at), f"{dtype}[{','.join(map(str, dims))}]", count, size, s))
    return sorted(found, key=lambda f: -f.bytes)


def _size(shape: str) -> int:
    """Bytes of an array, or of a tuple's last part (what a collective that is started gives)."""
    *_, (dtype, dims) = _SHAPE.findall(shape) or [("pred", "0")]
    count = _BYTES.get(dtype) or max(1, int(re.sub(r"\D", "", dtype[:4]) or 8) // 8)
    for d in dims.split(","):
        count *= int(d) if d else 1
    return count


@dataclass
class _Instruction:
    kind: str
    shape: str
    line: str  # its own, or that of what uses it first
    parameter: int  # what its first operand is; -1: no parameter


class _Computation:
    """One computation while it is read, line by line."""

    def __init__(self) -> None:
        self.parameter: dict[str, int] = {}  # by name of what is one, perhaps in another order
        self.source: dict[str, _Instruction] = {}  # by name: the collective that it hands on

    def read(self, m: re.Match[str]) -> _Instruction | None:
        name, args = m["name"], [a.lstrip("%") for a in m["args"].split(", ")]
        line = (m["meta"] or "").split(" ")[-1]
        line = line if ":" in line else ""
        for a in args:
            if a in self.source and not self.source[a].line:
                self.source[a].line = line
        kind, first = m["op"].removesuffix("-start"), self.parameter.get(args[0], -1)
        if m["op"] == "parameter":
            self.parameter[name] = int(args[0] or -1)
        elif m["op"] in _PASSES or m["op"].endswith("-done"):
            at = int(args[1].removeprefix("index=")) if len(args) > 1 else first
            self.parameter[name] = at if first >= 0 else -1
            if args[0] in self.source:
                self.source[name] = self.source[args[0]]
        elif kind in _hlo.COLLECTIVES:
            self.source[name] = _Instruction(kind, m["shape"], line, first)
            return self.source[name]
        return None


@lru_cache(64)
def _instructions(key: str) -> tuple[_Instruction, ...]:
    """The collectives of a compiled program, from its optimized form."""
    found = _C.optimized_program(key)
    text = _hlo.module_text(found[0], found[1]) if found else ""
    out: list[_Instruction] = []
    computation = _Computation()
    for row in text.splitlines():
        m = _INSTRUCTION.fullmatch(row)
        if not m:
            computation = _Computation()
        elif one := computation.read(m):
            out.append(one)
    return tuple(out)


def _partitioned() -> Iterator[tuple[str, int]]:
    """Keys of the programs that run on meshes, and how often they ran."""
    if _C.client_exists():
        for p in _C.programs():
            if p["devices"]:
                yield p["key"], p["runs"]


def collectives() -> list[Collective]:
    """By program, kind and line; those that move most first."""
    found = []
    for key, runs in _partitioned():
        by: dict[tuple[str, str], list[int]] = {}
        for i in _instructions(key):
            by.setdefault((i.kind, i.line), []).append(_size(i.shape))
        for (kind, line), sizes in by.items():
            found.append(Collective(kind, line, len(sizes), sum(sizes), key, runs))
    return sorted(found, key=lambda c: -c.bytes * max(c.runs, 1))


def _arguments(key: str) -> list[tuple[str, str]]:
    """Type and line of a program's buffers, by parameter, where its graph is kept."""
    record = _C.graph_record(key)
    nodes = list(Graph(*record)) if record else []
    return [(n.type, n.where) for n in nodes if n.name == "device_data"]


def gathered() -> list[Gathered]:
    """Arguments that programs gather whole, but for those that `fully_shard` cut."""
    found = []
    for key, runs in _partitioned():
        arguments = _arguments(key)
        for i in _instructions(key):
            if i.kind != "all-gather" or not 0 <= i.parameter < len(arguments):
                continue
            kind, where = arguments[i.parameter]
            dims = [int(d) for d in re.findall(r"\d+", kind.partition("[")[2])]
            whole = sorted(_SHAPE.findall(i.shape)[-1][1].split(",")) == sorted(map(str, dims))
            if whole and tuple(dims) not in gathered_by_design:
                at = Place(*_file_and_line(where), text=where)
                found.append(Gathered(at, kind, _size(i.shape), i.line, key, runs))
    return found


def _file_and_line(where: str) -> tuple[str, int]:
    file, _, line = where.split(" in ")[0].rpartition(":")
    return file, int(line) if line.isdigit() else 0
