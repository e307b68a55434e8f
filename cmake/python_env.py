"""Prints, as `KEY=VALUE` lines, what CMake needs to know about the build Python's packages.

usage: python_env.py [TORCH_DIR...]: the torch packages to build for, else the build Python's own.

Looks packages up without importing them: importing torch would cost seconds at every configure.
"""

import importlib.util
import re
import runpy
import sys
import sysconfig
from pathlib import Path


def package_dir(name: str) -> Path | None:
    """The folder of a package, or None where it is not installed."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def torch_version(torch: Path, key: str) -> str:
    """One string constant of torch/version.py."""
    text = (torch / "version.py").read_text()
    found = re.search(rf"^{key}(?::\s*\w+)?\s*=\s*'([^']*)'", text, re.M)
    return found.group(1) if found else ""


def torches(folders: list[Path]) -> list[str]:
    """For each torch: the extension's name, torch's folder, its version, its git revision."""
    found = []
    for folder in folders:
        version = torch_version(folder, "__version__")
        name = "_C_" + version.partition("+")[0].replace(".", "_") if len(folders) > 1 else "_C"
        found.append("|".join((name, str(folder), version, torch_version(folder, "git_version"))))
    return found


def cpu_plugin() -> str:
    """The library of the CPU plugin that programs use by default; empty where none is installed."""
    wheels = runpy.run_path(str(Path(__file__).parents[1] / "torch_pjrt/_cpu_wheels.py"))
    found = map(wheels["find_wheel"], wheels["CPU_WHEELS"])
    return next((str(library) for library, _ in filter(None, found)), "")


def main() -> None:
    """Prints the lines; a key is absent where the thing is not there."""
    torch, plugins = package_dir("torch"), package_dir("xla_plugins")
    jaxlib = package_dir("jaxlib")
    folders = [Path(a).resolve() for a in sys.argv[1:]] or ([torch] if torch else [])
    for line in torches(folders):
        print(f"TORCH={line}")
    if plugins and (header := plugins / "xla_cpu_pjrt/include/pjrt_c_api.h").exists():
        print(f"PJRT_INCLUDE={header.parent}")
    if jaxlib and (jaxlib / "include/xla/ffi/api/c_api.h").exists():
        print(f"FFI_INCLUDE={jaxlib / 'include'}")
    print(f"CPU_PLUGIN={cpu_plugin()}")
    print(f"PYTHON_INCLUDE={sysconfig.get_paths()['include']}")
    print(f"PYTHON_SUFFIX={sysconfig.get_config_var('EXT_SUFFIX')}")


if __name__ == "__main__":
    main()
