"""Storages of device xla: an identity for savers, bytes by copies, values between processes.

PyTorch has the device xla in lists of devices without storages. Ours have one: an address that
is unique to the memory and the same for all its views, but that nothing can read (storage.h).
With it, files, copies and pickles of xla tensors go PyTorch's ordinary way.
"""

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from . import _C

__all__ = ["install", "rebuild_storage"]

_Storage: Any = torch.UntypedStorage


def _ours(t: object) -> bool:
    """Whether t is a tensor of the backend itself. Asks no __torch_function__.

    Code that dynamo follows goes PyTorch's way: there are no addresses in a graph.
    """
    if torch.compiler.is_compiling():
        return False
    return isinstance(t, torch.Tensor) and _C.address_of(t) is not None


def _no_bytes(what: str) -> RuntimeError:
    return RuntimeError(
        f"{what}: a storage of device xla has an identity but no bytes that can be reached\n"
        "  try: storage.cpu(), which copies them"
    )


# ---- who a memory is ------------------------------------------------------------------------


def _is_alias_of(before: Callable[..., bool]) -> Callable[..., bool]:
    @functools.wraps(before)
    def wrapped(a: torch.Tensor, b: torch.Tensor) -> bool:
        if not _ours(a) or not _ours(b):
            return before(a, b)
        return a.untyped_storage() is b.untyped_storage()

    return wrapped


# ---- bytes ----------------------------------------------------------------------------------


def _new(cls: Any, *args: Any, **options: Any) -> Any:
    """`torch.UntypedStorage(size, device="xla")`: PyTorch knows no allocator of that device."""
    make: Any = torch._C.StorageBase.__new__
    device = options.get("device")
    if device is None or (device := torch.device(device)).type != "xla":
        return make(cls, *args, **options)
    options.pop("device")
    with torch.xla.device(device):  # type: ignore[attr-defined]
        return make(cls, *args, allocator=_C.storage_allocator(), **options)


def _getitem(before: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(before)
    def wrapped(self: Any, index: Any) -> Any:
        if self.device.type == "xla" and isinstance(index, slice):
            raise _no_bytes("storage[a:b]")
        return before(self, index)

    return wrapped


def _iter(self: Any) -> Iterator[Any]:
    read = self.cpu() if self.device.type == "xla" else self
    return iter(read[i] for i in range(self.size()))


def _repr(before: Callable[[Any], str]) -> Callable[[Any], str]:
    @functools.wraps(before)
    def wrapped(self: Any) -> str:
        if self.device.type != "xla":
            return before(self)
        return before(self.cpu()).replace("(device=cpu)", f"(device={self.device})")

    return wrapped


def _write_file(before: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(before)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        return before(self.cpu() if self.device.type == "xla" else self, *args, **options)

    return wrapped


def _set_from_file(before: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(before)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        if self.device.type != "xla":
            return before(self, *args, **options)
        before(read := torch.UntypedStorage(self.nbytes()), *args, **options)
        return self.copy_(read)

    return wrapped


def _refusing(name: str) -> Callable[..., Any]:
    before = getattr(_Storage, name)

    @functools.wraps(before)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        if self.device.type == "xla":
            raise _no_bytes(f"storage.{name.strip('_')}()")
        return before(self, *args, **options)

    return wrapped


# ---- pickles and copies ---------------------------------------------------------------------


def _reduce(before: Callable[..., Any]) -> Callable[..., Any]:
    """As for any device with storages, so that views go on sharing behind a file or a copy."""

    @functools.wraps(before)
    def wrapped(self: Any, proto: int) -> Any:
        if not _ours(self):
            return before(self, proto)
        torch.utils.hooks.warn_if_has_hooks(self)
        no_hooks: OrderedDict[Any, Any] = OrderedDict()
        new = self.dtype in torch.storage._new_dtypes()
        args = (
            self.untyped_storage() if new else self._typed_storage(),
            self.storage_offset(),
            tuple(self.size()),
            self.stride(),
            self.requires_grad,
            no_hooks,
            *((self.dtype,) if new else ()),
        )
        bits = torch._utils.get_tensor_metadata(self)  # type: ignore[no-untyped-call]
        rebuild: Any = torch._utils._rebuild_tensor_v3 if new else torch._utils._rebuild_tensor_v2
        return rebuild, (*args, bits) if bits else args

    return wrapped


def _deepcopy(before: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(before)
    def wrapped(self: Any, memo: dict[int, Any]) -> Any:
        done = id(self) in memo
        made = before(self, memo)
        if done or not _ours(made) or self.is_conj() or self.is_neg():
            return made
        with torch.no_grad():  # a clone was made of it alone: look at the copied memory instead
            storage = self._typed_storage()._deepcopy(memo)
            window = torch.empty(0, dtype=self.dtype, device=self.device)
            window.set_(storage, self.storage_offset(), self.size(), self.stride())
            made.data = window
        return made

    return wrapped


def _save_on_cpu(before: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(before)
    def wrapped(self: Any, pin_memory: bool = False, device_type: str = "cuda") -> None:
        before(self, pin_memory and device_type != "xla", device_type)  # which pins no memory

    return wrapped


# ---- processes ------------------------------------------------------------------------------


def rebuild_storage(host: torch.UntypedStorage, device: str) -> Any:
    """A copy of the bytes as a storage of the device."""
    return torch.UntypedStorage(host.nbytes(), device=device).copy_(host)


def _rebuild_bytes(read: bytearray, device: str) -> Any:
    host = torch.frombuffer(read, dtype=torch.uint8) if read else torch.empty(0)
    return rebuild_storage(host.untyped_storage(), device)


def _reduce_storage(storage: Any) -> Any:
    if storage.device.type != "xla":
        return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
    host, device = storage.cpu(), str(storage.device)
    if get_spawning_popen() is None:
        return rebuild_storage, (host, device)
    # A process that starts is handed open files by number, and this one's would be closed by then.
    read = torch.empty(0, dtype=torch.uint8).set_(host).numpy().tobytes()
    return _rebuild_bytes, (bytearray(read), device)


def _reduce_tensor(t: Any) -> Any:
    if t.device.type == "xla" and t.is_leaf:
        part = t.nbytes < t.untyped_storage().nbytes()
        if part or t.is_conj() or t.is_neg():  # the values, not the memory that they are seen in
            t = torch.Tensor._make_subclass(type(t), t.detach().clone(), t.requires_grad)
    return reductions.reduce_tensor(t)  # type: ignore[no-untyped-call]


def install() -> None:
    """Puts all of it in place, once."""
    tensor: Any = torch.Tensor
    _C.give_addresses(tensor)
    tensor._reduce_ex_internal = _reduce(tensor._reduce_ex_internal)
    tensor.__deepcopy__ = _deepcopy(tensor.__deepcopy__)
    torch._C._is_alias_of = _is_alias_of(torch._C._is_alias_of)  # type: ignore[attr-defined]
    hooks: Any = torch.autograd.graph.save_on_cpu
    hooks.__init__ = _save_on_cpu(hooks.__init__)
    _Storage.__new__ = _new
    _Storage.__getitem__ = _getitem(_Storage.__getitem__)
    _Storage.__iter__ = _iter
    _Storage.__repr__ = _repr(_Storage.__repr__)
    _Storage._write_file = _write_file(_Storage._write_file)
    _Storage._set_from_file = _set_from_file(_Storage._set_from_file)
    for name in ("byteswap", "_byteswap"):
        setattr(_Storage, name, _refusing(name))
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce_tensor)
