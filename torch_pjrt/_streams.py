"""Streams, events and what a device is: the part of `torch.xla` that answers code written for CUDA.

A device has one queue, in program order. Every stream is that queue, so that code which orders
streams by events is right as it stands, and gains nothing by it.
"""

import os
from dataclasses import dataclass
from typing import Any

import torch

from . import _C

__all__ = ["DeviceProperties", "Event", "Stream", "host_memory", "xla_device"]

Device = torch.device | str | int | None


def xla_device(device: Device) -> torch.device:
    """`xla:n`; the current device where none is named."""
    if isinstance(device, int):
        return torch.device("xla", device)
    found = torch.device("xla") if device is None else torch.device(device)
    if found.type != "xla":
        raise ValueError(f"torch.xla: expected a device of type xla, found '{found}'")
    return torch.device("xla", _C.current_device()) if found.index is None else found


class Stream(torch.Stream):
    """The device's queue. `synchronize` runs what is recorded and waits; `query` never waits.

    `priority` and further arguments are those of `torch.cuda.Stream`; they change nothing.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **more: Any) -> "Stream":
        del priority
        return super().__new__(cls, **(more or {"device": xla_device(device)}))

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        return None


class _IsEvent(type):
    def __instancecheck__(cls, found: object) -> bool:
        return isinstance(found, torch.Event) and found.device.type == "xla"


class Event(metaclass=_IsEvent):
    """A mark in the device's queue; makes a `torch.Event` of device xla.

    `record` launches what is recorded so far, as `torch_pjrt.sync()` does, and does not wait.
    `query` and `synchronize` are about what the device had to compute by then for tensors that
    live; `elapsed_time` gives the milliseconds between the moments at which two marks were
    computed. `wait` does nothing: the queue is in order.
    """

    def __new__(  # type: ignore[misc]
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        device: Device = None,
    ) -> torch.Event:
        if interprocess:
            raise NotImplementedError("device xla has no events between processes")
        return torch.Event(xla_device(device), enable_timing=enable_timing, blocking=blocking)


@dataclass(frozen=True)
class DeviceProperties:
    """What a plugin tells about a device. `total_memory` in bytes; 0 where it does not say."""

    name: str
    platform: str
    total_memory: int
    multi_processor_count: int
    major: int = 0
    minor: int = 0


def host_memory() -> tuple[int, int]:
    """(free, total) bytes of this machine's memory: that of a device that is the CPU."""
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
