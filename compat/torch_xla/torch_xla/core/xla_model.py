"""torch_xla.core.xla_model: devices, steps, random numbers, saving; collectives of one process."""

import collections
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypedDict

import torch
from torch.utils import _pytree as pytree

import torch_pjrt

from .. import _XLAC, _processes
from .._names import deprecated
from ..distributed.spmd.xla_sharding import ShardingSpec
from ..experimental._library import XLA_LIB
from ..utils.closures import AsyncClosureHandler
from ..utils.utils import DataWrapper
from ._collectives import (
    REDUCE_AND,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_MUL,
    REDUCE_OR,
    REDUCE_SUM,
    CoalescingBuckets,
    all_gather,
    all_gather_bucketized,
    all_reduce,
    all_reduce_bucketized_gradients,
    all_to_all,
    broadcast_master_param,
    collective_broadcast,
    collective_permute,
    create_optimized_replica_groups,
    mesh_reduce,
    recv,
    reduce_gradients,
    reduce_scatter,
    reduce_scatter_bucketized,
    rendezvous,
    send,
    xla_rendezvous,
)

__all__ = [
    "REDUCE_AND", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_MUL", "REDUCE_OR", "REDUCE_SUM",
    "CoalescingBuckets", "DeviceContext", "MemoryInfo", "RateTracker", "ShardingSpec",
    "ToXlaTensorArena", "XLA_LIB", "add_step_closure", "all_gather", "all_gather_bucketized",
    "all_reduce", "all_reduce_bucketized_gradients", "all_to_all", "broadcast_master_param",
    "check_view_sharing", "collective_broadcast", "collective_permute",
    "create_optimized_replica_groups", "do_on_ordinals", "fork_rng", "get_local_ordinal",
    "get_memory_info", "get_ordinal", "get_rng_state", "get_stablehlo", "get_stablehlo_bytecode",
    "get_xla_supported_devices", "is_master_ordinal", "is_xla_tensor", "mark_step",
    "master_print", "mesh_reduce", "optimization_barrier_", "optimizer_step", "recv",
    "reduce_gradients", "reduce_scatter", "reduce_scatter_bucketized", "rendezvous", "save",
    "send", "send_cpu_data_to_device", "set_replication", "set_rng_state", "unlazy",
    "wait_device_ops", "xla_device", "xla_device_hw", "xla_device_kind", "xla_real_devices",
    "xla_rendezvous", "xla_replication_devices", "xrt_world_size",
]  # fmt: skip


class MemoryInfo(TypedDict):
    """Bytes of a device."""

    bytes_used: int
    bytes_limit: int
    peak_bytes_used: int


# ---- devices --------------------------------------------------------------------------------


def xla_device(n: int | None = None, devkind: str | None = None) -> torch.device:
    """The device `xla:n`. `devkind` may name the plugin's kind, nothing else."""
    have = torch_pjrt.runtime.device_type()
    if devkind is not None and devkind.upper() != have.upper():
        raise RuntimeError(f"torch_xla: expected a device of kind {devkind}, found {have}")
    from ..torch_xla import device

    return device(n)


def get_xla_supported_devices(
    devkind: str | None = None, max_devices: int | None = None
) -> list[str] | None:
    """Names of the devices; None where there are none of that kind."""
    if devkind is not None and devkind.upper() != torch_pjrt.runtime.device_type().upper():
        return None
    return _XLAC._xla_get_devices()[:max_devices]


def xla_real_devices(devices: list[Any] | None = None) -> list[str]:
    return _XLAC._xla_real_devices([str(d) for d in devices] if devices else None)


def xla_device_hw(device: Any) -> str:
    """The hardware: "CPU", "TPU"; of a CPU device "CPU"."""
    d = torch.device(device)
    return "CPU" if d.type == "cpu" else torch_pjrt.runtime.device_type()


xla_device_kind = xla_device_hw


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "xla"


def set_replication(device: Any, devices: Any) -> None:
    """Which devices take part; one device a process needs nothing else."""
    _XLAC._xla_set_replication_devices([str(d) for d in devices or []])


def xla_replication_devices(local_devices: list[str]) -> list[str]:
    """Names with the hardware, of devices of one kind."""
    return _XLAC._xla_real_devices([str(d) for d in local_devices])


def get_local_ordinal() -> int:
    return _processes.local_rank()


def get_ordinal() -> int:
    return _processes.rank()


def xrt_world_size(defval: int = 1) -> int:
    return _processes.world()


def is_master_ordinal(local: bool = True) -> bool:
    return (_processes.local_rank() if local else _processes.rank()) == 0


def master_print(*args: Any, fd: Any = None, local: bool = False, flush: bool = False) -> None:
    if is_master_ordinal(local=local):
        print(*args, file=fd or sys.stdout, flush=flush)


def do_on_ordinals(
    target: Callable[..., Any], data: tuple[Any, ...] = (), ordinals: tuple[int, ...] = (0,)
) -> None:
    if _processes.rank() in ordinals:
        target(*data)


def get_memory_info(device: Any = None) -> MemoryInfo:
    index = torch.device(device).index if device is not None else None
    m = torch_pjrt.memory(index)
    limit = m.get("bytes_limit", 0)
    return MemoryInfo(
        bytes_used=m["live_bytes"], bytes_limit=limit, peak_bytes_used=m["peak_live_bytes"]
    )


# ---- steps ----------------------------------------------------------------------------------


class _Closures:
    """What waits for the end of a step, of all threads: a backward pass has its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.plain: list[Any] = []
        self.later_on: list[Any] = []
        self.handler = AsyncClosureHandler()

    def take(self) -> tuple[list[Any], list[Any]]:
        with self.lock:
            plain, self.plain = self.plain, []
            later_on, self.later_on = self.later_on, []
        return plain, later_on


_closures = _Closures()


def _mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    _XLAC._xla_step_marker(wait=wait)
    run_step_closures()


mark_step = deprecated("xm.mark_step", "torch_xla.sync", _mark_step)


def unlazy(tensors: list[torch.Tensor]) -> None:
    """Runs what the tensors (and all others) wait for."""
    torch_pjrt.sync(wait=True)


def wait_device_ops(devices: Any = ()) -> None:
    torch_pjrt.wait()


def add_step_closure(
    closure: Callable[..., Any], args: tuple[Any, ...] = (), run_async: bool = False
) -> None:
    """Calls `closure(*args)` once the step has run, at the next sync."""
    with _closures.lock:
        (_closures.later_on if run_async else _closures.plain).append((closure, args))


def run_step_closures() -> None:
    """What add_step_closure was given since the last step."""
    plain, later_on = _closures.take()
    if later_on:
        torch_pjrt.wait()
        _closures.handler.run_all([lambda c=c, a=a: c(*a) for c, a in later_on])
    for closure, args in plain:
        closure(*args)


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: dict[str, Any] | None = None,
    groups: Any = None,
    pin_layout: bool = True,
) -> Any:
    """Reduces the gradients, steps, and with `barrier` syncs."""
    reduce_gradients(optimizer, groups=groups)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        _mark_step()
    return loss


def _fetch_gradients(optimizer: Any) -> list[torch.Tensor]:
    return [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]


# ---- data -----------------------------------------------------------------------------------


def _maybe_convert_to_cpu(data: Any, convert: bool = True) -> Any:
    if not convert:
        return data
    return pytree.tree_map_only(
        torch.Tensor, lambda t: t.cpu() if t.device.type == "xla" else t, data
    )


def _sent(t: torch.Tensor, device: Any, sharding: Any) -> torch.Tensor:
    moved = t.detach().to(device).requires_grad_(t.requires_grad)
    if sharding is None or not sharding.can_apply(moved):
        return moved
    if sharding.minibatch and t.shape[0] % len(torch_pjrt.devices()):
        raise RuntimeError(
            "When minibatch is configured, the per-host batch size must be divisible by local "
            f"runtime device count. Per host input data shape {tuple(t.shape)}, "
            f"{len(torch_pjrt.devices())} devices"
        )
    return sharding.apply(moved)


def send_cpu_data_to_device(datas: Any, device: Any, input_sharding: Any = None) -> Any:
    """The same with its tensors on the device, cut as `input_sharding` says.

    That is a ShardingSpec, or a dict with one (or None) for each key of the data. ValueError for
    data that is no dict then, KeyError for a key that it does not name.
    """
    if isinstance(datas, torch.Tensor):
        datas = [datas]

    def convert(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [_sent(t, device, input_sharding) for t in tensors]

    if not isinstance(input_sharding, dict):
        arena = ToXlaTensorArena(convert, lambda x: isinstance(x, torch.Tensor) and x.is_cpu)
        return arena.transform(datas)
    many = isinstance(datas, list | tuple)
    found = [_sent_by_key(data, device, input_sharding) for data in (datas if many else [datas])]
    return found if many else found[0]


def _sent_by_key(data: Any, device: Any, shardings: dict[Any, Any]) -> dict[Any, Any]:
    """Each value as the sharding of its key says, None for one device."""
    if not isinstance(data, dict):
        raise ValueError(
            f"input_sharding is a dict: expected a batch that is one too, found {type(data)}"
        )
    missing = [k for k in data if k not in shardings]
    if missing:
        raise KeyError(f"Keys: {missing} are missing from input_sharding, which has {[*shardings]}")
    return {k: send_cpu_data_to_device([v], device, shardings[k])[0] for k, v in data.items()}


class ToXlaTensorArena:
    """Converts the tensors that `select_fn` takes, in whatever holds them, with one call."""

    def __init__(
        self, convert_fn: Callable[[list[Any]], list[Any]], select_fn: Callable[[Any], bool]
    ) -> None:
        self._convert, self._select = convert_fn, select_fn

    def transform(self, inputs: Any) -> Any:

        found: list[Any] = []

        def collect(x: Any) -> Any:
            if isinstance(x, DataWrapper):
                return _Held(x, [collect(t) for t in x.get_tensors()])
            if not self._select(x):
                return x
            found.append(x)
            return _Place(len(found) - 1)

        shaped = _rewritten(
            inputs, lambda x: self._select(x) or isinstance(x, DataWrapper), collect
        )
        made = self._convert(found)
        kinds = (_Place, _Held)
        return _rewritten(shaped, lambda x: isinstance(x, kinds), lambda x: x.filled(made))


def _rewritten(value: Any, select: Callable[[Any], bool], fn: Callable[[Any], Any]) -> Any:
    """A copy of containers with `fn` of what is selected; other objects stay as they are."""
    if select(value):
        return fn(value)
    if isinstance(value, dict):
        pairs = [(_rewritten(k, select, fn), _rewritten(v, select, fn)) for k, v in value.items()]
        return _like_dict(value, pairs)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_rewritten(x, select, fn) for x in value))
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_rewritten(x, select, fn) for x in value)
    if pytree._get_node_type(value) in pytree.SUPPORTED_NODES:
        flat, spec = pytree.tree_flatten(value)
        return pytree.tree_unflatten([_rewritten(x, select, fn) for x in flat], spec)
    return value


def _like_dict(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """A dict of the same class: one that cannot be made of pairs is copied and filled."""
    try:
        return type(value)(pairs)
    except TypeError:
        import copy

        made = copy.copy(value)
        made.clear()
        made.update(pairs)
        return made


class _Place:
    """Stands for a tensor, by its number."""

    def __init__(self, index: int) -> None:
        self.index = index

    def filled(self, made: list[Any]) -> Any:
        return made[self.index]


class _Held:
    """Stands for a DataWrapper."""

    def __init__(self, wrapper: Any, tensors: list[Any]) -> None:
        self.wrapper, self.tensors = wrapper, tensors

    def filled(self, made: list[Any]) -> Any:
        now = [t.filled(made) if isinstance(t, _Place) else t for t in self.tensors]
        return self.wrapper.from_tensors(now)


def check_view_sharing(obj: Any) -> None:
    """Views are right on torch_pjrt: nothing to warn of."""


def save(
    data: Any,
    file_or_path: Any,
    master_only: bool = True,
    global_master: bool = False,
    sync: bool = True,
    rendezvous: str = "torch_xla.core.xla_model.save",
) -> None:
    """torch.save of the data with its tensors on the CPU, by the master of each machine."""
    should = not master_only or is_master_ordinal(local=not global_master)
    cpu = _maybe_convert_to_cpu(data)
    if should:
        torch.save(cpu, file_or_path)
    if sync and _processes.world() > 1:
        xla_rendezvous(rendezvous)


# ---- random numbers -------------------------------------------------------------------------


_SEEDS = 1 << 64


def set_rng_state(seed: int, device: Any = None) -> None:
    """Seeds the device; what get_rng_state() gave continues where it was taken."""
    if 0 <= seed < _SEEDS:
        torch_pjrt.manual_seed(seed)
        return
    state = torch.tensor(list(seed.to_bytes(16, "little")), dtype=torch.uint8)
    torch.xla.set_rng_state(state)  # type: ignore[attr-defined]


def get_rng_state(device: Any = None) -> int:
    """The seed, and above its 64 bits how many numbers were drawn."""
    state: torch.Tensor = torch.xla.get_rng_state()  # type: ignore[attr-defined]
    return int.from_bytes(bytes(state.tolist()), "little")


@contextlib.contextmanager
def fork_rng(device: Any = None, enabled: bool = True) -> Iterator[None]:
    """Random numbers drawn inside do not count outside."""
    if not enabled:
        yield
        return
    with torch.random.fork_rng(
        devices=[_XLAC._xla_get_default_device_ordinal()], device_type="xla"
    ):
        yield


# ---- to look at -----------------------------------------------------------------------------


def get_stablehlo(tensors: list[torch.Tensor] | None = None) -> str:
    """What would run to compute the tensors; of None, what ran last."""
    if tensors:
        return torch_pjrt.graph.of(tensors).hlo
    last = torch_pjrt.graph.last()
    return last.hlo if last else ""


def get_stablehlo_bytecode(tensors: list[torch.Tensor] | None = None) -> bytes:
    return get_stablehlo(tensors).encode()


def optimization_barrier_(tensors: Iterable[torch.Tensor]) -> None:
    """What is computed of one of them waits for all of them; values do not change."""
    _XLAC._xla_optimization_barrier_(tensors)


class RateTracker:
    """Items a second: since the last rate() smoothed, and since the start."""

    def __init__(self, smooth_factor: float = 0.8) -> None:
        self._smooth = smooth_factor
        self._start = self._then = time.monotonic()
        self._count = self._before = 0.0
        self._rate: float | None = None

    def add(self, count: float) -> None:
        self._count += count

    def rate(self) -> float:
        now = time.monotonic()
        fresh = (self._count - self._before) / max(now - self._then, 1e-9)
        old = fresh if self._rate is None else self._rate
        self._rate = (1 - self._smooth) * fresh + self._smooth * old
        self._then, self._before = now, self._count
        return self._rate

    def global_rate(self) -> float:
        return self._count / max(time.monotonic() - self._start, 1e-9)


DeviceContext = collections.namedtuple("DeviceContext", ["device", "num_workers"])
