"""The names of the package itself."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

import torch_pjrt
from torch_pjrt import _C, _step

from . import _XLAC, _counts, _processes

__all__ = [
    "compile", "device", "device_count", "devices", "launch", "manual_seed", "real_devices",
    "set_custom_compile_options", "step", "sync",
]  # fmt: skip


def device(index: int | None = None) -> torch.device:
    """The device, `xla:0` where no index is given."""
    _processes.before_client()
    if index and index >= len(torch_pjrt.devices()):
        raise IndexError(f"device xla:{index}: there are {len(torch_pjrt.devices())}")
    return torch.device("xla", index or 0)


def devices() -> list[torch.device]:
    """All devices of the process."""
    _processes.before_client()
    return torch_pjrt.devices()


def real_devices() -> list[str]:
    """Their names with the hardware, "CPU:0"."""
    kind = torch_pjrt.runtime.device_type()
    return [f"{kind}:{d.index}" for d in devices()]


def device_count() -> int:
    """How many there are."""
    return len(devices())


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """Runs what is recorded."""
    _XLAC._xla_step_marker(wait=wait)
    _closures()


def _closures() -> None:
    from .core import xla_model

    xla_model.run_step_closures()


@contextlib.contextmanager
def step() -> Iterator[None]:
    """What is recorded inside is a program of its own."""
    sync()
    try:
        yield
    finally:
        sync()


def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: dict[str, Any] | None = None,
) -> Any:
    """One program a call of `f`; without `f`, of what a `with` block records.

    `full_graph` and `max_different_graphs` are those of torch_pjrt.compile; `name` and compile
    options are taken and change nothing (torch_pjrt.explain() tells what compiled and why).
    """
    if f is None:
        return _block(full_graph, max_different_graphs)
    compiled = torch_pjrt.compile(
        f, full_graph=full_graph, max_different_graphs=max_different_graphs
    )

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        # in eager mode too the function is one program
        with _counts.in_function(), torch_pjrt.eager_mode(False):
            return compiled(*args, **kwargs)

    return wrapped


@contextlib.contextmanager
def _block(full_graph: bool, most: int | None) -> Iterator[None]:
    sync()
    cuts = torch_pjrt.no_cuts() if full_graph else contextlib.nullcontext()
    counted = _step.under(_C.GraphLimit("a block", most) if most else None)
    with (
        _counts.in_function(),
        torch_pjrt.eager_mode(False),
        torch_pjrt.tiers("off"),
        counted,
        cuts,
    ):
        yield
        sync()


def manual_seed(seed: int, device: Any = None) -> None:
    """Seeds the device's generator."""
    torch_pjrt.manual_seed(seed)


def launch(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Calls `fn(rank, *args)`: in this process, of which torchrun may have started many."""
    fn(_processes.rank(), *args)


def set_custom_compile_options(options: dict[str, Any]) -> None:
    """Compile options of the plugin, as XLA_FLAGS has them; before the first compile."""
    if options:
        raise NotImplementedError(
            "torch_xla.set_custom_compile_options: not on torch_pjrt\n  try: XLA_FLAGS in the "
            "environment"
        )
