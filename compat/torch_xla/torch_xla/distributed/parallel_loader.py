"""Loaders that move batches to the device in a thread of their own and end each step."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

import torch

import torch_pjrt

from ..core import xla_model as xm


class MpDeviceLoader:
    """Batches of `loader` on the device. A sync ends each step, before the next batch is given."""

    def __init__(self, loader: Any, device: Any = "xla", **kwargs: Any) -> None:
        self._loader, self._device, self._parallel_loader_kwargs = loader, device, kwargs

    def __iter__(self) -> Iterator[Any]:
        return iter(ParallelLoader(self._loader, [self._device], **self._parallel_loader_kwargs))

    def __len__(self) -> int:
        return len(self._loader)


class ParallelLoader:
    """The same for one pass."""

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
        if len(devices) != 1:
            raise NotImplementedError(
                f"torch_xla ParallelLoader: one device a process, found {len(devices)}"
            )
        self._loader, self._device = cpu_loader, torch.device(devices[0])
        self._ready: queue.Queue[tuple[str, Any]] = queue.Queue(max(device_prefetch_size, 1))
        self._every = batches_per_execution
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        try:
            for batch in self._loader:
                moved = xm.send_cpu_data_to_device([batch], self._device)[0]
                if not self._put(("batch", moved)):
                    return
            self._put(("end", None))
        except BaseException as error:  # raised where the batch is asked for
            self._put(("error", error))

    def _put(self, item: tuple[str, Any]) -> bool:
        while not self._closed.is_set():
            try:
                self._ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def __iter__(self) -> Iterator[Any]:
        given = 0
        try:
            while True:
                kind, what = self._ready.get()
                if kind == "end" or (given and given % self._every == 0):
                    torch_pjrt.sync()
                    xm.run_step_closures()
                if kind == "end":
                    return
                if kind == "error":
                    raise what
                given += 1
                yield what
        finally:
            self.close()

    def per_device_loader(self, device: Any) -> "ParallelLoader":
        """Itself."""
        return self

    def next_item(self, device: Any = None) -> Any:
        """The next batch, None at the end."""
        return next(iter(self), None)

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()

    def __len__(self) -> int:
        return len(self._loader)


PerDeviceLoader = ParallelLoader
