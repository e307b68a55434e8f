"""PyTorch on any PJRT plugin.

`import torch_pjrt` makes the device `xla` known to PyTorch. Ops on it are recorded; a sync (or a
read of a value) turns the recorded graph into one program, compiled once and found again by its
hash.
"""

from ._extension import load as _load_extension
from ._extension import newest as _newest

try:
    import torch
except ModuleNotFoundError as _error:
    if _error.name != "torch":  # one that is there and lacks something says so itself
        raise
    raise ImportError(f"torch_pjrt needs PyTorch: pip install torch=={_newest()}") from _error

_load_extension(torch.__version__)

from . import _C, aot, cache, export, flags, graph, metrics, plugins, runtime  # noqa: E402
from ._accelerator import as_accelerator  # noqa: E402
from ._build_info import VERSION as __version__  # noqa: E402, N811
from ._capture import capture  # noqa: E402
from ._device_module import manual_seed  # noqa: E402
from ._eager import eager_mode  # noqa: E402
from ._explain import explain, no_cuts  # noqa: E402
from ._log import install as _install_log  # noqa: E402
from ._patches import install as _install  # noqa: E402
from ._scan_layers import scan_layers  # noqa: E402
from ._scope import ModuleScopes as _ModuleScopes  # noqa: E402
from ._scope import scope  # noqa: E402
from ._step import compile  # noqa: E402
from ._tiers import tiers  # noqa: E402

__all__ = [
    "__version__",
    "aot",
    "as_accelerator",
    "cache",
    "capture",
    "compile",
    "device",
    "devices",
    "eager_mode",
    "explain",
    "export",
    "flags",
    "graph",
    "manual_seed",
    "memory",
    "metrics",
    "module_scopes",
    "no_cuts",
    "plugins",
    "runtime",
    "scan_layers",
    "scope",
    "state",
    "sync",
    "tiers",
    "wait",
]


def device(index: int | None = None) -> torch.device:
    """The device `xla`, or `xla:index`."""
    return torch.device("xla") if index is None else torch.device("xla", index)


def devices() -> list[torch.device]:
    """All devices of the client (starts it)."""
    return [torch.device("xla", i) for i in range(_C.device_count())]


def sync(wait: bool = False) -> None:
    """Runs everything recorded so far, as one program; with `wait`, until the results are there.

    Recording goes on while the program runs. Reading a value does the same for what it needs.
    Inside a function that is compiled or captured it does nothing: that launches when it is called.
    """
    if not torch.compiler.is_compiling():
        _C.sync(wait)


def wait() -> None:
    """Blocks until the device is idle. Does not run what is only recorded: see `sync`."""
    _C.wait()


def memory(index: int | None = None) -> dict[str, int]:
    """Bytes on a device, as counted where buffers are made and freed.

    live_bytes: all buffers that live; peak_live_bytes: the most at once; donated_bytes: what
    programs were given to overwrite since the start, so that results took no new memory.
    """
    return _C.memory_info(_C.current_device() if index is None else index)


def state(t: torch.Tensor) -> str:
    """Where the value of an xla tensor is now: "device", "ir" (pending), "host" or "view"."""
    return _C.state(t)


module_scopes = _ModuleScopes()
_install_log()
_C.set_versions(torch.__version__, __version__)
if not _C.client_exists():  # a module that is loaded again keeps its client
    plugins.register()
_install()
if any(f.value == "1" for f in flags.table() if f.name in ("XLA_IR_DEBUG", "XLA_HLO_DEBUG")):
    module_scopes.on()
