"""The module that PyTorch knows as `torch.xla`: devices, waiting, memory, random state.

Random numbers of all devices come from one generator: the same seed gives the same numbers
everywhere.
"""

import os
from collections.abc import Iterable
from types import TracebackType

import torch

from . import _C

__all__ = [
    "current_device",
    "device",
    "device_count",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "is_available",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "memory_allocated",
    "memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "synchronize",
]

Device = torch.device | str | int | None

_initialized = True  # torch.utils.checkpoint saves random state only where this is true
_forked = False  # are we the child of a process that had a client?


def _after_fork() -> None:
    global _forked  # noqa: PLW0603
    _forked = _forked or _C.client_exists()


os.register_at_fork(after_in_child=_after_fork)


def _is_in_bad_fork() -> bool:
    """Whether the device is lost to this process: a fork does not copy the plugin's threads."""
    return _forked


def _index(device: Device) -> int:
    """The number of a device; the current one where none is named.

    Raises RuntimeError where the client has no such device.
    """
    if device is None:
        return _C.current_device()
    if isinstance(device, int):
        index = device
    else:
        found = torch.device(device)
        if found.type != "xla":
            raise ValueError(f"torch.xla: expected a device of type xla, found '{found}'")
        index = _C.current_device() if found.index is None else found.index
    _C.check_device(index)
    return index


# ---- devices --------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether a plugin is registered; starts nothing."""
    return bool(_C.registered()) and not _forked


def is_initialized() -> bool:
    """Whether the client has been started."""
    return _C.client_exists()


def device_count() -> int:
    """How many devices the client has."""
    return _C.device_count()


def current_device() -> int:
    """The device that `torch.device("xla")` means in this thread."""
    return _C.current_device()


def set_device(device: Device) -> None:
    """Changes what `torch.device("xla")` means in this thread."""
    if (index := _index(device)) >= 0:
        _C.exchange_device(index)


def get_device_name(device: Device = None) -> str:
    """The plugin's text for a device."""
    found = _C.client_info()["devices"]
    return str(found[_index(device)]["text"])  # type: ignore[index]


class device:  # noqa: N801 - the name that torch.cuda gives it
    """Context manager: another current device inside. A negative number changes nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = _index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.prev_idx >= 0:
            _C.exchange_device(self.prev_idx)


def synchronize(device: Device = None) -> None:
    """Runs what is recorded and waits for it."""
    _index(device)  # one queue serves all devices
    _C.sync(True)


def memory_stats(device: Device = None) -> dict[str, int]:
    """live_bytes, peak_live_bytes and donated_bytes as counted here (see `torch_pjrt.memory`).

    Where the plugin tells, its own bytes_in_use, peak_bytes and limit_bytes too.
    """
    return _C.memory_info(_index(device))


def memory_allocated(device: Device = None) -> int:
    """Bytes of the tensors that are on the device."""
    return memory_stats(device)["live_bytes"]


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes at once since the start, or since `reset_peak_memory_stats`."""
    return memory_stats(device)["peak_live_bytes"]


def reset_peak_memory_stats(device: Device = None) -> None:
    """Lets `max_memory_allocated` begin anew from what is allocated now."""
    _C.reset_peak_memory(_index(device))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that autocast may compute in."""
    return [torch.bfloat16, torch.float16]


# ---- random numbers -------------------------------------------------------------------------


def get_rng_state(device: Device = "xla") -> torch.Tensor:
    """The generator's state, a CPU tensor of bytes."""
    _index(device)
    return _C.default_generator().get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """One state for each generator: there is one."""
    return [get_rng_state()]


def set_rng_state(new_state: torch.Tensor, device: Device = "xla") -> None:
    """Puts a state of `get_rng_state` back."""
    _index(device)
    _C.default_generator().set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Puts the states of `get_rng_state_all` back."""
    for state in new_states:
        set_rng_state(state)


def manual_seed(seed: int) -> None:
    """Seeds the device's random numbers only; `torch.manual_seed` seeds them too."""
    if not _forked:
        _C.default_generator().manual_seed(int(seed))


manual_seed_all = manual_seed


def seed() -> None:
    """Seeds with a random number."""
    _C.default_generator().seed()


seed_all = seed


def initial_seed() -> int:
    """The seed in use."""
    return _C.default_generator().initial_seed()


def __getattr__(name: str) -> object:
    if name == "default_generators":
        return (_C.default_generator(),)
    raise AttributeError(f"module 'torch.xla' has no attribute '{name}'")
