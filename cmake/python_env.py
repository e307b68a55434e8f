"""Prints, as `KEY=VALUE` lines, what CMake needs to know about the build Python's packages.

Looks packages up without importing them: importing torch would cost seconds at every configure.
"""

import importlib.util
import re
import runpy
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


def cpu_plugin() -> str:
    """The library of the CPU plugin that programs use by default; empty where none is installed."""
    wheels = runpy.run_path(str(Path(__file__).parents[1] / "torch_pjrt/_cpu_wheels.py"))
    found = map(wheels["find_wheel"], wheels["CPU_WHEELS"])
    return next((str(library) for library, _ in filter(None, found)), "")


def main() -> None:
    """Prints the lines; a key is absent where the thing is not there."""
    torch, plugins = package_dir("torch"), package_dir("xla_plugins")
    jaxlib = package_dir("jaxlib")
    if torch:
        print(f"TORCH_DIR={torch}")
        print(f"TORCH_VERSION={torch_version(torch, '__version__')}")
        print(f"TORCH_GIT={torch_version(torch, 'git_version')}")
    if plugins and (header := plugins / "xla_cpu_pjrt/include/pjrt_c_api.h").exists():
        print(f"PJRT_INCLUDE={header.parent}")
    if jaxlib and (jaxlib / "include/xla/ffi/api/c_api.h").exists():
        print(f"FFI_INCLUDE={jaxlib / 'include'}")
    print(f"CPU_PLUGIN={cpu_plugin()}")
    print(f"PYTHON_INCLUDE={sysconfig.get_paths()['include']}")
    print(f"PYTHON_SUFFIX={sysconfig.get_config_var('EXT_SUFFIX')}")


if __name__ == "__main__":
    main()
