"""`torch.load(map_location="xla")`.

A storage cannot live on xla, so PyTorch's way (map the storages, then build tensors) ends on the
CPU. Here the storages that were to go to xla are remembered while the file is read; the tensors
built on them are moved afterwards. That serves strings, devices, dicts and functions alike.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["install"]


class _Session(threading.local):
    """Storages to move (by address) of the torch.load that runs in this thread."""

    wanted: dict[int, tuple[torch.UntypedStorage, str]] | None = None


_session = _Session()


def _tag(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type == "xla" else None


def _restore(storage: Any, location: str) -> Any:
    """PyTorch asks where to put a storage: remember the wish, leave it on the CPU."""
    if location.partition(":")[0] != "xla":
        return None
    if _session.wanted is None:
        raise RuntimeError(
            f"cannot restore a storage to '{location}': xla tensors have no storage of their own. "
            "Load with torch.load(f, map_location='xla') so that the tensors are moved"
        )
    _session.wanted[storage._cdata] = (storage, location)
    return storage


class _Mover:
    """Replaces, in a tree of loaded objects, the tensors on wanted storages. Sharing is kept."""

    def __init__(self, wanted: dict[int, tuple[torch.UntypedStorage, str]]) -> None:
        self.wanted = wanted
        self.done: dict[int, tuple[Any, Any]] = {}  # id -> (kept alive, replacement)

    def move(self, obj: Any) -> Any:
        if isinstance(obj, str | bytes | int | float | complex | type | torch.device | torch.dtype):
            return obj
        if (known := self.done.get(id(obj))) is not None:
            return known[1]
        self.done[id(obj)] = (obj, obj)
        made = self._replace(obj)
        self.done[id(obj)] = (obj, made)
        return made

    def _replace(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            return self._tensor(obj)
        if isinstance(obj, tuple):
            return self._tuple(obj)
        if isinstance(obj, list):
            obj[:] = [self.move(x) for x in obj]
        elif isinstance(obj, dict):
            for key, value in obj.items():
                obj[key] = self.move(value)
        if isinstance(inside := getattr(obj, "__dict__", None), dict) and not callable(
            getattr(obj, "__code__", None)
        ):
            self.move(inside)
        return obj

    def _tuple(self, obj: tuple[Any, ...]) -> tuple[Any, ...]:
        made = [self.move(x) for x in obj]
        if all(a is b for a, b in zip(made, obj, strict=True)):
            return obj
        return type(obj)(*made) if hasattr(obj, "_fields") else type(obj)(made)

    def _tensor(self, t: torch.Tensor) -> torch.Tensor:
        if t.layout != torch.strided or t.device.type != "cpu":
            return t
        wish = self.wanted.get(t.untyped_storage()._cdata)
        if wish is None:
            return t
        moved = t.detach().to(wish[1])
        if isinstance(t, torch.nn.Parameter):
            moved = torch.nn.Parameter(moved, requires_grad=t.requires_grad)
        else:
            moved.requires_grad_(t.requires_grad)
        moved.__dict__.update({k: self.move(v) for k, v in vars(t).items()})
        return moved


def _wrap_load(load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before, _session.wanted = _session.wanted, {}
        try:
            loaded, wanted = load(*args, **kwargs), _session.wanted
        finally:
            _session.wanted = before
        return _Mover(wanted).move(loaded) if wanted else loaded

    return wrapped


def _wrap_restore_location(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Saved xla tensors meet `map_location=function`, which PyTorch refuses: ask the function."""

    @functools.wraps(original)
    def wrapped(device: Any) -> Any:
        function = torch.serialization._serialization_tls.map_location
        if not callable(function) or torch.device(device).type != "xla":
            return original(device)
        wanted, _session.wanted = _session.wanted, {}
        try:
            probe: Any = torch.UntypedStorage(0)
            answer = function(probe, str(device))
            wished = _session.wanted.get(probe._cdata)
        finally:
            _session.wanted = wanted
        return device if answer is None else wished[1] if wished else answer.device

    return wrapped


def install() -> None:
    """Puts the three hooks into torch.serialization."""
    torch.serialization.register_package(15, _tag, _restore)
    for name in (
        "_load",
        "_legacy_load",
    ):  # `torch.load` itself stays: its warnings name its caller
        setattr(torch.serialization, name, _wrap_load(getattr(torch.serialization, name)))
    torch._utils._get_restore_location = _wrap_restore_location(torch._utils._get_restore_location)
