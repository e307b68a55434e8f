"""One process drives one device, or many by marks on tensors (torch_xla.distributed.spmd)."""

from typing import Any

from .._names import later_class

_INSTEAD = "torch_xla.distributed.spmd, or DistributedDataParallel over processes"
DataParallel = later_class("distributed.data_parallel.DataParallel", _INSTEAD)


class Context:
    """What a thread of DataParallel knows."""

    def __init__(self, device: Any) -> None:
        self.device = device


class ThreadResult:
    """What a thread of DataParallel gave."""

    def __init__(self) -> None:
        self.result: Any = None
