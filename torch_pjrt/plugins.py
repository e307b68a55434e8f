"""Finds PJRT plugins and tells the registry about them; none is loaded before its first use.

Sources: the CPU wheels, libtpu, and the entry points `torch_pjrt.plugins`, `torch_xla.plugins` and
`jax_plugins` of installed packages. `TORCH_PJRT_PLUGIN=NAME:/path.so` adds one; the core reads it.
"""

import importlib.metadata
import mmap
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from . import _C, _plugin_environment
from ._cpu_wheels import ALL_MISTAKES, CPU_WHEELS, NUMERICS, CpuWheel, Option, find_wheel

__all__ = [
    "ALL_MISTAKES", "CPU_WHEELS", "CpuWheel", "Option", "Plugin", "find", "find_wheel", "register",
]  # fmt: skip

ENTRY_POINT_GROUPS = ("torch_pjrt.plugins", "torch_xla.plugins", "jax_plugins")


@dataclass(frozen=True)
class Plugin:
    """One entry of the registry: what PJRT_DEVICE may name."""

    name: str
    library: str
    source: str  # where it was found, for people
    options: dict[str, Option] = field(default_factory=dict)  # of PJRT_Client_Create
    compile_options: dict[str, Option] = field(default_factory=dict)
    wants_kv: bool = False  # the distributed key-value store
    how_to_install: str = ""
    variables: tuple[str, ...] = ()  # that it reads; none: those of _plugin_environment
    problem: str = ""  # why there is no library though a package is installed
    mistakes: tuple[str, ...] | None = None  # of its compiler, by name; None: nobody has looked
    # Over those of its platform; docs/plugins.md has their names.
    capabilities: dict[str, Option] = field(default_factory=dict)
    recorded_for: str = ""  # the platform that programs are recorded for; empty: its own
    device_count: int = 0  # that it will have; 0: not known before it starts
    more_devices: str = ""  # how to have {} devices


def _cpu_devices() -> int:
    """TORCH_PJRT_CPU_DEVICES; the core complains at first use where that is no number."""
    text = os.environ.get("TORCH_PJRT_CPU_DEVICES", "")
    return int(text) if text.isdecimal() else 1


def _cpu_plugin(wheel: CpuWheel, library: str, version: str) -> Plugin:
    return Plugin(
        name="CPU",
        library=library,
        source=f"wheel {wheel.distribution}",
        options={"cpu_device_count": _cpu_devices()},
        compile_options=NUMERICS | wheel.options,
        how_to_install=wheel.how_to_install,
        mistakes=wheel.mistakes_of(version),
        device_count=_cpu_devices(),
        more_devices="set TORCH_PJRT_CPU_DEVICES={} before the import",
    )


def find_cpu() -> Plugin:
    """The CPU plugin: the one that TORCH_PJRT_CPU_PLUGIN names, else the first installed wheel.

    Where there is none the entry has no library and says what to install: it fails at first use.
    """
    asked = os.environ.get("TORCH_PJRT_CPU_PLUGIN", "")
    for wheel in CPU_WHEELS:
        if asked in ("", wheel.distribution) and (found := find_wheel(wheel)):
            return _cpu_plugin(wheel, *found)
    known = {w.distribution: w for w in CPU_WHEELS}
    if asked and asked not in known:
        advice = f"TORCH_PJRT_CPU_PLUGIN={asked} is no known CPU plugin wheel; known are "
        advice += ", ".join(known)
    else:
        advice = known.get(asked, CPU_WHEELS[0]).how_to_install
    return Plugin("CPU", "", "nowhere", how_to_install=advice)


def find_from_variable() -> list[Plugin]:
    """What TORCH_PJRT_PLUGIN=NAME:/path.so says. For people: the core reads it by itself."""
    name, _, path = os.environ.get("TORCH_PJRT_PLUGIN", "").partition(":")
    return [Plugin(name, path, "TORCH_PJRT_PLUGIN")] if name and path else []


def find_tpu() -> list[Plugin]:
    """libtpu: in TPU_LIBRARY_PATH, in the wheel, in the system."""
    spec = find_spec("libtpu")
    wheel = [Path(p, "libtpu.so") for p in (spec.submodule_search_locations or [])] if spec else []
    places = [
        ("TPU_LIBRARY_PATH", Path(os.environ.get("TPU_LIBRARY_PATH") or "/nonexistent")),
        *(("wheel libtpu", p) for p in wheel),
        ("the system", Path("/usr/lib/libtpu.so")),
        ("the system", Path("/lib/libtpu.so")),
    ]
    for source, path in places:
        if path.is_file():
            return [Plugin("TPU", str(path), source, how_to_install="pip install libtpu")]
    return []


def _exports_pjrt(path: Path) -> bool:
    """Whether a shared library names GetPjrtApi (read, not loaded)."""
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"GetPjrtApi") >= 0


def _from_jax(entry: importlib.metadata.EntryPoint) -> Plugin:
    """A JAX plugin wheel: its module wants jax, so only its library is taken."""
    parent, _, leaf = entry.value.partition(":")[0].rpartition(".")
    spec = find_spec(parent) if parent else find_spec(leaf)
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        for library in sorted(Path(folder, leaf if parent else "").glob("*.so")):
            if _exports_pjrt(library):
                return Plugin(_device_name(entry), str(library), _source(entry))
    where = ", ".join(folders) or "no folder"
    raise LookupError(f"no shared library that names GetPjrtApi is in {where}")


def _device_name(entry: importlib.metadata.EntryPoint) -> str:
    """What PJRT_DEVICE calls a plugin. A JAX plugin's name is short: xla_cuda13 -> CUDA."""
    if entry.group != "jax_plugins":
        return entry.name.upper()
    return re.sub(r"\d+$", "", entry.name.removeprefix("xla_")).upper()


def _source(entry: importlib.metadata.EntryPoint) -> str:
    return f"{entry.group}: {entry.name}"


def _from_class(entry: importlib.metadata.EntryPoint) -> Plugin:
    """A class with library_path(), client_create_options(), requires_xla_coordinator()."""
    made = entry.load()()

    def answer(method: str, otherwise: object) -> object:
        ask: Callable[[], object] | None = getattr(made, method, None)
        return ask() if ask else otherwise

    def table(method: str) -> dict[str, Option]:
        found = answer(method, None) or {}
        if not isinstance(found, dict):
            raise TypeError(f"plugin {entry.name}: {method}() must give a dict, not {found!r}")
        return found

    return Plugin(
        name=_device_name(entry),
        library=str(answer("library_path", "")),
        source=_source(entry),
        options=table("client_create_options"),
        compile_options=table("compile_options"),
        wants_kv=bool(answer("requires_xla_coordinator", False)),
        how_to_install=str(answer("how_to_install", "")),
        variables=tuple(map(str, answer("environment_variables", ()))),  # type: ignore[call-overload]
        capabilities=table("capabilities"),
    )


def _in_words(error: BaseException) -> str:
    """What a package's own code raised, on one line."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return " ".join(text.split())


def _broken(entry: importlib.metadata.EntryPoint, error: BaseException) -> Plugin:
    """An installed package whose code fails: known by name, and what it said."""
    package = entry.dist.name if entry.dist else "its package"
    return Plugin(
        name=_device_name(entry),
        library="",
        source=_source(entry),
        how_to_install=f"make `import {entry.module}` work, or install {package} again",
        problem=f"package {package} is installed, but {entry.value} fails: {_in_words(error)}",
    )


def find_entry_points(problems: list[str] | None = None) -> list[Plugin]:
    """Plugins of installed packages.

    One that fails has no library and says why, here and in a line of `problems`. A stranger's code
    must not break ours, nor end the process by sys.exit.
    """
    found: list[Plugin] = []
    for group in ENTRY_POINT_GROUPS:
        for entry in importlib.metadata.entry_points(group=group):
            try:
                plugin = _from_jax(entry) if group == "jax_plugins" else _from_class(entry)
            except (Exception, SystemExit) as error:
                plugin = _broken(entry, error)
                if problems is not None:
                    problems.append(f"{plugin.source}: {plugin.problem}")
            found.append(plugin)
    return found


def find(problems: list[str] | None = None) -> list[Plugin]:
    """Every plugin there is: CPU, TPU, entry points. The first of a name that works wins."""
    unique: dict[str, Plugin] = {}
    for p in [find_cpu(), *find_tpu(), *find_entry_points(problems)]:
        known = unique.setdefault(p.name, p)
        if known.problem and not p.problem:
            unique[p.name] = p
    return list(unique.values())


def register(found: Iterable[Plugin] | None = None) -> None:
    """Tells the registry. By default: only as far as PJRT_DEVICE asks, since looking takes time."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # plugins log each option they take
    if found is None:
        found = find() if _wants_all() else [find_cpu()]
    for p in found:
        _C.register_plugin(
            p.name,
            p.library,
            p.options,
            p.compile_options,
            p.wants_kv,
            p.how_to_install,
            p.variables or _plugin_environment.variables(p.name),
            _plugin_environment.facts(p.name),
            p.problem,
            p.mistakes,
            p.capabilities,
            p.recorded_for,
            p.device_count,
            p.more_devices,
        )


def _wants_all() -> bool:
    """CPU and the plugin of TORCH_PJRT_PLUGIN need no search through installed packages."""
    named = [p.name for p in find_from_variable()]
    return os.environ.get("PJRT_DEVICE", "") not in ("", "CPU", *named)
