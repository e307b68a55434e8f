"""The module that PyTorch knows as `torch.xla`: devices, streams, memory, random state.

Random numbers of all devices come from one generator: the same seed gives the same numbers
everywhere.
"""

import gc
import os
from collections.abc import Iterable
from types import TracebackType

import torch

from . import _C
from ._streams import Device, DeviceProperties, Event, Stream, host_memory, xla_device

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]

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
    index = device if isinstance(device, int) else xla_device(device).index
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


def init() -> None:
    """Starts the client, which the first tensor does by itself."""
    _C.client_info()


def get_device_name(device: Device = None) -> str:
    """The plugin's text for a device."""
    found = _C.client_info()["devices"]
    return str(found[_index(device)]["text"])  # type: ignore[index]


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Name, platform and memory of a device, as far as its plugin tells."""
    info = _C.client_info()
    on_host = info["capabilities"]["host memory"]
    stats = memory_stats(device)
    return DeviceProperties(
        name=get_device_name(device),
        platform=str(info["platform"]),
        total_memory=stats.get("limit_bytes", 0) or (host_memory()[1] if on_host else 0),
        multi_processor_count=(os.cpu_count() or 1) if on_host else 1,
    )


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """(0, 0): a PJRT plugin names no version of its instruction set."""
    _index(device)
    return 0, 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: XLA computes in bfloat16 on every platform, by float32 where the hardware cannot."""
    del including_emulation
    return True


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


class device_of(device):  # noqa: N801 - the name that torch.cuda gives it
    """Context manager: the device of a tensor is the current one inside; of another's, nothing."""

    def __init__(self, obj: torch.Tensor) -> None:
        super().__init__(obj.device if obj.device.type == "xla" else -1)


# ---- streams --------------------------------------------------------------------------------


def current_stream(device: Device = None) -> Stream:
    """The device's queue: there is one."""
    return Stream(device)


default_stream = current_stream


class StreamContext(device):
    """`with torch.xla.stream(s):` changes nothing but the device: there is one queue."""

    def __init__(self, stream: torch.Stream | None) -> None:
        super().__init__(-1 if stream is None else stream.device)
        self.stream = stream


def set_stream(stream: torch.Stream | None) -> None:
    """Changes the current device to that of the stream: there is one queue a device."""
    if stream is not None:
        set_device(stream.device)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager of `StreamContext`."""
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    """False: nothing is captured in CUDA's sense."""
    return False


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


def memory_reserved(device: Device = None) -> int:
    """Bytes that the plugin holds for the device; those of the tensors where it does not say."""
    stats = memory_stats(device)
    return stats.get("bytes_in_use", stats["live_bytes"])


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes that the plugin held; those of the tensors where it does not say."""
    stats = memory_stats(device)
    return stats.get("peak_bytes", stats["peak_live_bytes"])


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes of the device; of the machine, where the device is the CPU.

    Raises NotImplementedError where the plugin does not tell.
    """
    stats = memory_stats(device)
    if limit := stats.get("limit_bytes", 0):
        return max(0, limit - stats["bytes_in_use"]), limit
    info = _C.client_info()
    if info["capabilities"]["host memory"]:
        return host_memory()
    raise NotImplementedError(
        f"torch.xla.mem_get_info: the {info['platform']} plugin does not tell its memory\n"
        "  try: torch.xla.memory_allocated(), the bytes of the tensors"
    )


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """`memory_stats` as text, a line a number."""
    del abbreviated
    return "\n".join(f"{name:<16} {n:>16,}" for name, n in memory_stats(device).items())


def empty_cache() -> None:
    """Drops garbage that holds tensors; freed buffers go back to the plugin at once, without it."""
    gc.collect()


def reset_peak_memory_stats(device: Device = None) -> None:
    """Lets `max_memory_allocated` begin anew from what is allocated now."""
    _C.reset_peak_memory(_index(device))


reset_accumulated_memory_stats = reset_peak_memory_stats
reset_max_memory_allocated = reset_peak_memory_stats


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that autocast may compute in."""
    return [torch.bfloat16, torch.float16]


# ---- random numbers -------------------------------------------------------------------------


def get_rng_state(device: Device = "xla") -> torch.Tensor:
    """The generator's state, a CPU tensor of bytes."""
    _index(device)
    return _C.default_generator().get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """One state for each generator, of which there is one: a CPU tensor of bytes."""
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
    if name == "OutOfMemoryError":
        return torch.OutOfMemoryError
    raise AttributeError(f"module 'torch.xla' has no attribute '{name}'")
