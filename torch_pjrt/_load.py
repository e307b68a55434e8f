"""`torch.save` of xla storages and `torch.load` to the device (`map_location="xla"`)."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from ._storage import rebuild_storage

__all__ = ["install"]


def _tag(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type == "xla" else None


def _restore(storage: Any, location: str) -> Any:
    """PyTorch asks where to put a storage that it read."""
    if location.partition(":")[0] != "xla":
        return None
    return rebuild_storage(storage, location)


def _wrap_restore_location(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Files of torch_pjrt 0.1 hold CPU tensors and a device; PyTorch refuses to ask a function."""

    @functools.wraps(original)
    def wrapped(device: Any) -> Any:
        function = torch.serialization._serialization_tls.map_location
        if not callable(function) or torch.device(device).type != "xla":
            return original(device)
        probe: Any = torch.UntypedStorage(0)
        answer = function(probe, str(device))
        return device if answer is None else answer.device

    return wrapped


def install() -> None:
    """Puts the hooks into torch.serialization."""
    torch.serialization.register_package(15, _tag, _restore)
    torch._utils._get_restore_location = _wrap_restore_location(torch._utils._get_restore_location)
