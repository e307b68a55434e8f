"""Hardware that programs can be compiled for though it is not there: the one table of it.

Device memory is what the compiler may fill. TPUs: "available HBM" in libtpu 0.0.52's refusal of a
program that is too large; GPUs: what the driver reports.
"""

import importlib.util
import re
from dataclasses import dataclass, field
from pathlib import Path

from . import plugins
from ._cpu_wheels import Option

__all__ = ["HARDWARE", "Target", "resolve"]

_GIB = 1 << 30
_WHEELS = {
    "TPU": "pip install libtpu",
    "CUDA": "pip install --no-deps jax-cuda13-pjrt nvidia-cuda-nvcc nvidia-nvvm",
}


@dataclass(frozen=True)
class Gpu:
    """What CUDA's compiler wants to know of a GPU. Sizes in bytes, the clock in GHz."""

    title: str
    capability: tuple[int, int]
    cores: int
    units: int  # float32 units a core
    shared_a_core: int
    shared_a_block: int
    l2: int
    bandwidth: int  # bytes a second
    clock: float


@dataclass(frozen=True)
class Hardware:
    """A row: its name, the plugin that compiles for it, bytes a device, a topology to name."""

    name: str
    plugin: str
    memory: int
    example: str
    gpu: Gpu | None = None


HARDWARE = {
    h.name: h
    for h in (
        Hardware("v4", "TPU", int(15.25 * _GIB), "v4:2x2x1"),
        Hardware("v5e", "TPU", int(15.75 * _GIB), "v5e:2x2"),
        Hardware("v5p", "TPU", int(95.73 * _GIB), "v5p:2x2x1"),
        Hardware("v6e", "TPU", int(31.24 * _GIB), "v6e:2x2"),
        Hardware("tpu7x", "TPU", int(94.74 * _GIB), "tpu7x:2x2x1"),
        Hardware("a100", "CUDA", 85_100_068_864, "a100:8", Gpu(
            "NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 167_936, 166_912, 40 << 20,
            2_039_040_000_000, 1.41)),
        Hardware("h100", "CUDA", 84_942_979_072, "h100:8", Gpu(
            "NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 233_472, 232_448, 50 << 20,
            3_352_320_000_000, 1.98)),
        Hardware("h200", "CUDA", 151_397_597_184, "h200:8", Gpu(
            "NVIDIA H200 141GB HBM3e", (9, 0), 132, 128, 233_472, 232_448, 50 << 20,
            4_800_000_000_000, 1.98)),
        Hardware("b200", "CUDA", 191_514_411_008, "b200:8", Gpu(
            "NVIDIA B200", (10, 0), 148, 128, 233_472, 232_448, 132_644_864,
            7_672_320_000_000, 1.965)),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A topology as its plugin wants it. `memory`: bytes a device; None: not in the table."""

    topology: str
    plugin: str
    library: str
    name: str  # what the plugin calls it
    options: dict[str, Option] = field(default_factory=dict)  # of the topology
    compile_options: dict[str, Option] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)  # while the plugin is loaded
    memory: int | None = None


def _known() -> str:
    return ", ".join(h.example for h in HARDWARE.values())


def _unknown(topology: str, why: str) -> ValueError:
    return ValueError(
        f"topology '{topology}': {why}; known are, in any size, {_known()}\n"
        "  try: a name of these, or plugin=NAME of a plugin that knows it"
    )


def _row(plugin: str | None, topology: str) -> Hardware | None:
    """The row of a topology; None where it is left to a plugin that has none here."""
    name, _, size = topology.partition(":")
    row = HARDWARE.get(name)
    if plugin is not None and plugin not in _WHEELS:
        return None
    if row is None:
        raise _unknown(topology, f"no hardware is called '{name}'")
    if plugin not in (None, row.plugin):
        raise _unknown(topology, f"it is {row.plugin}'s, and plugin {plugin} was asked for")
    if not re.fullmatch(r"[1-9]\d*" if row.gpu else r"[1-9]\d*(x[1-9]\d*)*", size):
        raise _unknown(topology, f"'{size}' is no size, which looks like {row.example}")
    return row


def _library(plugin: str) -> str:
    """The plugin's file. Raises RuntimeError naming what to install."""
    found = [*plugins.find_from_variable(), *plugins.find()]
    here = next((p for p in found if p.name == plugin), None)
    if here and here.library:
        return here.library
    why = "is not installed: no plugin of that name was found"
    if here and here.problem:
        why = f"cannot be used: {here.problem}"
    advice = _WHEELS.get(plugin) or f"set TORCH_PJRT_PLUGIN={plugin}:/path/to/plugin.so"
    raise RuntimeError(f"plugin {plugin} {why}\n  try: {advice}")


_CUDA_CONFIG = """gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {g.shared_a_core}
  threads_per_core_limit: 2048
  core_count: {g.cores}
  fpus_per_core: {g.units}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {g.bandwidth}
  l2_cache_size: {g.l2}
  clock_rate_ghz: {g.clock}
  device_memory_size: {memory}
  shared_memory_per_block_optin: {g.shared_a_block}
  cuda_compute_capability {{ major: {g.capability[0]} minor: {g.capability[1]} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{g.title}"
"""


def _cuda_tools() -> str:
    """The folder of ptxas and libdevice, without which nothing is compiled for a GPU."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for tools in sorted(Path(folder).glob("cu*"), reverse=True):
            if (tools / "bin" / "ptxas").exists() and (tools / "nvvm" / "libdevice").exists():
                return str(tools)
    raise RuntimeError(
        "plugin CUDA compiles with ptxas and libdevice, which are not installed\n"
        "  try: pip install --no-deps nvidia-cuda-nvcc nvidia-nvvm"
    )


def _cuda(row: Hardware, gpu: Gpu, topology: str, library: str) -> Target:
    count = int(topology.partition(":")[2])
    hosts, each = (count // 8, 8) if count > 8 else (1, count)
    if hosts * each != count:
        raise _unknown(topology, f"{count} GPUs are no whole number of hosts with 8")
    options: dict[str, Option] = {
        "target_config": _CUDA_CONFIG.format(g=gpu, memory=row.memory),
        "topology": f"1x{hosts}x{each}",
    }
    tools: dict[str, Option] = {"xla_gpu_cuda_data_dir": _cuda_tools()}
    return Target(topology, "CUDA", library, "", options, tools, memory=row.memory)


# Without the first libtpu asks a cloud's metadata server, for minutes.
_TPU_ALONE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "TPU_LOG_DIR": "disabled",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no chip is held, so that processes need not exclude others
}


def resolve(plugin: str | None, topology: str) -> Target:
    """The target that a topology's name stands for.

    Raises ValueError for a name that is not in the table, RuntimeError, with what to install, where
    its plugin is not there. Loads nothing.
    """
    row = _row(plugin, topology)
    library = _library(row.plugin if row else str(plugin))
    if row is None:
        return Target(topology, str(plugin), library, topology)
    if row.gpu:
        return _cuda(row, row.gpu, topology, library)
    environment = _TPU_ALONE
    return Target(topology, "TPU", library, topology, environment=environment, memory=row.memory)
