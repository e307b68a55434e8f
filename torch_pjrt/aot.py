"""Programs for hardware that is not there: compiled ahead of time, measured, kept in files.

program = torch_pjrt.aot.compile(model, (x,), topology="v5e:2x2")
print(program.memory, program.collectives)
program.save("model.program")
torch_pjrt.aot.load("model.program")(*tensors)  # on that hardware, by that plugin
"""

import hashlib
import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from . import _C, _hlo, _topologies, export, graph, plugins, runtime

__all__ = ["LoadedProgram", "Memory", "Program", "Topology", "compile", "load"]

_FORMAT = 1
_COLLECTIVE = re.compile(
    rf" = .*? ({'|'.join((*_hlo.COLLECTIVES, 'ragged-all-to-all'))})(?:-start)?\("
)


@dataclass(frozen=True)
class Memory:
    """Bytes on each device while the program runs; `limit`: what the device has, None: not known.

    `aliased` are outputs that take the place of arguments. `code` lies on the device too. What
    else is alive on the device, and is no argument of this program, is not counted.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int
    code: int
    limit: int | None = None

    @property
    def total(self) -> int:
        """What the device needs at once."""
        return self.arguments + self.outputs - self.aliased + self.temporaries + self.code

    @property
    def fits(self) -> bool | None:
        """Whether the device has that much; None where its size is not known."""
        return None if self.limit is None else self.total <= self.limit

    def __str__(self) -> str:
        parts = f"{size(self.total)} a device"
        if self.limit is not None:
            verdict = "fits" if self.fits else "does not fit"
            parts += f" of {size(self.limit)}: {verdict}"
        return (
            f"{parts} (arguments {size(self.arguments)}, outputs {size(self.outputs)}, in place "
            f"{size(self.aliased)}, temporaries {size(self.temporaries)}, code {size(self.code)})"
        )


def size(n: int) -> str:
    """Bytes for people: "1.7 MB", in powers of 1024."""
    for unit, scale in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if n >= scale:
            return f"{n / scale:.1f} {unit}"
    return f"{n} B"


@dataclass(frozen=True)
class Program:
    """A compiled program.

    `hlo` is the StableHLO that was compiled, `text` what the plugin made of it (empty where it does
    not tell), `arguments` what an exported model takes, in order (empty for other modules).
    `memory` is None and `cost` (flops, bytes accessed, ...; of one device) empty where the plugin
    does not tell. `collectives` counts them by kind.
    """

    plugin: str
    topology: str
    kind: str  # of the devices, in the plugin's words: "TPU v5 lite"
    devices: int  # that the program runs on
    memory: Memory | None
    cost: dict[str, float]
    collectives: dict[str, int]
    arguments: tuple[export.Argument, ...]
    hlo: str
    text: str
    executable: bytes  # the plugin's serialized form
    made_by: dict[str, str]  # the plugin's API version and the digest of its file

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a program file for `load`; weights are not in it. Gives its path."""
        kept = ("plugin", "topology", "kind", "devices", "cost", "collectives", "made_by")
        meta = {"format": _FORMAT} | {name: getattr(self, name) for name in kept}
        meta["memory"] = asdict(self.memory) if self.memory else None
        meta["arguments"] = [asdict(a) for a in self.arguments]
        to = Path(path)
        with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("program.json", json.dumps(meta, indent=1))
            file.writestr("module.mlir", self.hlo)
            file.writestr("optimized.txt", self.text)
            file.writestr("executable", self.executable)
        return to


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that are set inside, where they are not set already."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


class Topology:
    """Devices that are not there, by name; `kinds` has their kinds, one a device.

    Programs are compiled at TORCH_PJRT_OPTIMIZATION_LEVEL.

    Raises ValueError for a name that is not known, RuntimeError where its plugin is not installed.
    """

    def __init__(self, name: str, plugin: str | None = None) -> None:
        self.target = _topologies.resolve(plugin, name)
        t = self.target
        try:
            with _environment(t.environment):
                self._topology = _C.Topology(t.library, t.name, t.options)
                self.kinds: list[str] = self._topology.kinds
                self.platform: str = self._topology.platform  # "tpu"
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(
                f"topology '{name}': plugin {t.plugin} does not know it: {error}"
            ) from None

    def compile(self, hlo: str) -> Program:
        """The program of a StableHLO module. Raises what the plugin says where it cannot.

        Raises ValueError where the module runs on more devices than the topology has.
        """
        devices = _devices_of(hlo)
        if devices > len(self.kinds):
            raise ValueError(
                f"the program runs on {devices} devices, topology '{self.target.topology}' has "
                f"{len(self.kinds)}"
            )
        t = self.target
        made = self._topology.compile(hlo, devices, "sdy.mesh" in hlo, t.compile_options)
        memory, cost, form, optimized = made.inspect()
        text = _hlo.module_text(form, optimized)
        return Program(
            t.plugin, t.topology, self.kinds[0], devices, _memory(memory, t.memory),
            # TPUs give a time that is below zero.
            {name: value for name, value in cost.items() if value >= 0},
            count_collectives(text), (), hlo, text, made.serialize(),
            {"api": ".".join(map(str, self._topology.api)), "sha256": _digest(t.library)},
        )  # fmt: skip


def _memory(told: dict[str, int] | None, limit: int | None) -> Memory | None:
    if told is None:
        return None
    names = ("arguments", "outputs", "aliased", "temporaries", "code")
    return Memory(**{name: told[name] for name in names}, limit=limit)


def _digest(library: str) -> str:
    with open(library, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _devices_of(hlo: str) -> int:
    """How many devices a module says that it runs on: the size of its mesh."""
    meshes = re.findall(r"sdy\.mesh @\w+ = <\[([^\]]*)\]", hlo)
    return max((math.prod(map(int, re.findall(r"=(\d+)", m))) for m in meshes), default=1)


def count_collectives(text: str) -> dict[str, int]:
    """Collectives of an optimized program by kind; one that is in two halves counts once."""
    found = Counter(m[1] for line in text.splitlines() if (m := _COLLECTIVE.search(line)))
    return dict(sorted(found.items()))


def compile(
    model: Any,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    topology: str,
    plugin: str | None = None,
) -> Program:
    """The program of a call `model(*args, **kwargs)` for hardware that is not there.

    `model` is what `torch_pjrt.export.stablehlo` takes (a module, a function, an exported program;
    recorded once, not run), or what is recorded already: a `graph.Graph` (`graph.last()` after a
    training step), an `export.Program`, or StableHLO text. `topology` is a name of the table in
    docs/aot.md ("v5e:2x2", "h100:8"); with the `plugin` of another name, what that plugin calls it.

    Raises ValueError for a topology that is not known, RuntimeError with what to install where its
    plugin is not there, torch.OutOfMemoryError where the plugin finds that the device is too small,
    and what the plugin says where it cannot compile the program.
    """
    devices = Topology(topology, plugin)
    if isinstance(model, str):
        return devices.compile(model)
    if isinstance(model, graph.Graph):
        return devices.compile(model.hlo)
    if not isinstance(model, export.Program):
        model = export.stablehlo(model, args, kwargs, portable=False)
    return replace(devices.compile(model.text), arguments=model.signature.arguments)


class LoadedProgram:
    """A program file on the hardware that it was made for. `meta` is what `Program.save` wrote."""

    def __init__(self, hlo: str, executable: bytes, meta: dict[str, Any], name: str) -> None:
        self.meta, self.hlo = meta, hlo
        self.arguments = tuple(export.Argument(**a) for a in meta["arguments"])
        self._program = _C.Loaded(hlo, executable, name)

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The results, on device 0, for the module's parameters in its order.

        Shapes and dtypes are those that the program was compiled with.
        """
        whole = [export._whole(t.to("xla:0")) for t in tensors]
        return list(self._program.call(whole))


def load(path: str | os.PathLike[str]) -> LoadedProgram:
    """The program of a file that `Program.save` wrote, on device 0 of this process; no compile.

    Raises FileNotFoundError; ValueError where it is no such file; RuntimeError where it was made
    for another plugin, another build of it or other devices: such bytes may compute garbage.
    """
    what = f"torch_pjrt.aot.load: '{path}'"
    try:
        with zipfile.ZipFile(path) as file:
            meta = json.loads(file.read("program.json"))
            hlo, executable = file.read("module.mlir").decode(), file.read("executable")
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{what} is no program file: {error}") from None
    if meta.get("format") != _FORMAT:
        raise ValueError(f"{what} is of format {meta.get('format')}, this version reads {_FORMAT}")
    if wrong := _wrong_hardware(meta):
        raise RuntimeError(f"{what} was made for {meta['topology']} ({meta['plugin']}): {wrong}")
    return LoadedProgram(hlo, executable, meta, f"the program of '{path}'")


def _wrong_hardware(meta: dict[str, Any]) -> str:
    """Why the program is not for this process's devices; empty where it is."""
    if meta["devices"] > 1:
        return f"it runs on {meta['devices']} devices, and programs of one can be loaded"
    name = os.environ.get("PJRT_DEVICE") or "CPU"
    if name != meta["plugin"]:
        return f"this process uses {name}\n  try: PJRT_DEVICE={meta['plugin']}"
    kinds = {str(d["kind"]) for d in runtime.devices()}
    if kinds != {meta["kind"]}:
        return f"its devices are {meta['kind']}, those here {', '.join(sorted(kinds))}"
    found = [*plugins.find_from_variable(), *plugins.find()]
    library = next(p.library for p in found if p.name == name)
    if _digest(library) != meta["made_by"]["sha256"]:
        return "another build of the plugin made it\n  try: compile it with this one"
    return ""
