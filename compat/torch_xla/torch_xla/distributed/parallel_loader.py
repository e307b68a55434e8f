"""Loaders that move batches to the device in a thread of their own and end each step."""

import itertools
import queue
import threading
from collections.abc import Iterator
from typing import Any

import torch

from ..core import xla_model as xm
from ..torch_xla import sync


class MpDeviceLoader:
    """Batches of `loader` on the device. A sync ends each step, before the next batch is given."""

    def __init__(self, loader: Any, device: Any = "xla", **kwargs: Any) -> None:
        self._loader, self._device, self._parallel_loader_kwargs = loader, device, kwargs

    def __getattr__(self, name: str) -> Any:
        """What the loader has: accelerate asks for its data set."""
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(ParallelLoader(self._loader, [self._device], **self._parallel_loader_kwargs))

    def __len__(self) -> int:
        return len(self._loader)


class ParallelLoader:
    """The same for one pass, over one device or several in turn."""

    def __init__(
        self,
        cpu_loader: Any,
        devices: list[Any],
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
    ) -> None:
        self._loader, self._devices = cpu_loader, [torch.device(d) for d in devices]
        self._ready = {d: PerDeviceQueue(d, 0, device_prefetch_size) for d in self._devices}
        self._every, self._sharding = batches_per_execution, input_sharding
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        end: tuple[str, Any] = ("end", None)
        try:
            for batch, device in zip(self._loader, itertools.cycle(self._devices), strict=False):
                moved = xm.send_cpu_data_to_device([batch], device, self._sharding)[0]
                if not self._put(device, ("batch", moved)):
                    return
        except BaseException as error:  # raised where the batch is asked for
            end = ("error", error)
        for device in self._devices:
            self._put(device, end)

    def _put(self, device: Any, item: tuple[str, Any]) -> bool:
        while not self._closed.is_set():
            try:
                self._ready[device].queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def per_device_loader(self, device: Any) -> "PerDeviceLoader":
        """The batches of one device."""
        return PerDeviceLoader(self, torch.device(device))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.per_device_loader(self._devices[0]))

    def next_item(self, device: Any = None) -> Any:
        """The next batch, None at the end."""
        kind, what = self._ready[torch.device(device or self._devices[0])].queue.get()
        if kind == "error":
            raise what
        return what

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()

    def __len__(self) -> int:
        return len(self._loader)


class PerDeviceQueue:
    """Batches that are on their device."""

    def __init__(self, device: Any, loader_prefetch_size: int, device_prefetch_size: int) -> None:
        self.device = device
        self.queue: queue.Queue[tuple[str, Any]] = queue.Queue(max(device_prefetch_size, 1))


class PerDeviceLoader:
    """The batches of one device; a sync ends each step."""

    def __init__(self, loader: ParallelLoader, device: torch.device) -> None:
        self._loader, self._device = loader, device
        self._given = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        kind, what = self._loader._ready[self._device].queue.get()
        if kind == "end" or (self._given and self._given % self._loader._every == 0):
            sync()
        if kind == "error":
            raise what
        if kind == "end":
            self._loader._ready[self._device].queue.put((kind, what))
            raise StopIteration
        self._given += 1
        return what

    next = __next__

    def __len__(self) -> int:
        return len(self._loader)
