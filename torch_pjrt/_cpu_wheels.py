"""The CPU plugin's wheels: which there are, in which order they are tried, what each gets wrong.

Imports nothing of the package, so that the build (cmake/python_env.py) can ask it too.
"""

import importlib.metadata
from dataclasses import dataclass, field

__all__ = ["ALL_MISTAKES", "CPU_WHEELS", "CpuWheel", "Option", "find_wheel"]

Option = str | int | bool | float

# Eager's numbers: NaN through max and min, and bf16 rounded where PyTorch rounds.
NUMERICS: dict[str, Option] = {
    "xla_cpu_enable_fast_min_max": False,
    "xla_allow_excess_precision": False,
}
# YNNPACK without convolution (weight gradients would be 5 to 20 times slower).
_YNN: dict[str, Option] = {
    "xla_cpu_experimental_ynn_fusion_type": ",".join(
        f"LIBRARY_FUSION_TYPE_{kind}" for kind in ("DOT", "REDUCE", "INDIVIDUAL_DOT")
    )
}
# Mistakes of XLA's compiler (src/base/capabilities.h): those of every wheel, and of the older ones.
_MISTAKES = ("updates", "bitcasts", "bool products", "bool sums", "narrow masks")
_OLDER = (*_MISTAKES, "squares")
ALL_MISTAKES = (*_OLDER, "arctangents")


@dataclass(frozen=True)
class CpuWheel:
    """A distribution that holds a CPU plugin, as of the version that we have tried."""

    distribution: str
    library: str
    version: str
    mistakes: tuple[str, ...]  # tests/python/test_cpu_plugins.py holds them
    options: dict[str, Option] = field(default_factory=dict)  # for speed, beside NUMERICS

    @property
    def how_to_install(self) -> str:
        """A command; without dependencies, since one wheel asks for a jax that it does not use."""
        return f"pip install --no-deps {self.distribution}=={self.version}"

    def mistakes_of(self, version: str) -> tuple[str, ...]:
        """What the compiler of that version does wrong: of one that was not tried, all."""
        return self.mistakes if version == self.version else ALL_MISTAKES


# The order is that of speed; docs/design/0006-cpu-plugins.md has the measurements.
CPU_WHEELS = (
    CpuWheel(
        "lammps-jax-pjrt-cpu",
        "pjrt_c_api_cpu_plugin.so",
        "0.11.2",
        (*_MISTAKES, "arctangents"),
        _YNN,
    ),
    CpuWheel("fastatomstruct-xla-cpu", "libpjrt_cpu.so", "2026.6.23", _OLDER, _YNN),
    CpuWheel("xla-cpu-pjrt", "xla_cpu_pjrt.so", "0.0.1", _OLDER),
)


def find_wheel(wheel: CpuWheel) -> tuple[str, str] | None:
    """The installed wheel's library and version, or None where it is not installed."""
    try:
        there = importlib.metadata.distribution(wheel.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    files = (f for f in there.files or [] if f.name == wheel.library)
    return next(((str(f.locate()), there.version) for f in files), None)
