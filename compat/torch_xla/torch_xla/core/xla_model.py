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

from .. import _XLAC
from .._names import ONE_PROCESS, deprecated, later
from ..utils.closures import AsyncClosureHandler

REDUCE_SUM, REDUCE_MUL, REDUCE_AND = "sum", "mul", "and"
REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "or", "min", "max"


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
    return torch.device("xla", n or 0)


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
    """One device a process: nothing to set up."""


def xla_replication_devices(local_devices: list[str]) -> list[str]:
    return list(local_devices)


def get_local_ordinal() -> int:
    return 0


get_ordinal = get_local_ordinal


def xrt_world_size(defval: int = 1) -> int:
    return 1


def is_master_ordinal(local: bool = True) -> bool:
    return True


def master_print(*args: Any, fd: Any = None, local: bool = False, flush: bool = False) -> None:
    print(*args, file=fd or sys.stdout, flush=flush)


def do_on_ordinals(
    target: Callable[..., Any], data: tuple[Any, ...] = (), ordinals: tuple[int, ...] = (0,)
) -> None:
    if 0 in ordinals:
        target(*data)


def get_memory_info(device: Any = None) -> MemoryInfo:
    index = torch.device(device).index if device is not None else None
    m = torch_pjrt.memory(index)
    limit = m.get("bytes_limit", 0)
    return MemoryInfo(
        bytes_used=m["live_bytes"], bytes_limit=limit, peak_bytes_used=m["peak_live_bytes"]
    )


# ---- steps ----------------------------------------------------------------------------------

_closures: "threading.local" = threading.local()


def _mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    torch_pjrt.sync(wait=wait)
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
    name = "asynchronous" if run_async else "plain"
    vars(_closures).setdefault(name, []).append((closure, args))


def run_step_closures() -> None:
    """What add_step_closure was given since the last step."""
    plain, later_on = (vars(_closures).pop(n, []) for n in ("plain", "asynchronous"))
    if later_on:
        handler = vars(_closures).setdefault("handler", AsyncClosureHandler())
        torch_pjrt.wait()
        handler.run_all([lambda c=c, a=a: c(*a) for c, a in later_on])
    for closure, args in plain:
        closure(*args)


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: dict[str, Any] | None = None,
    groups: Any = None,
    pin_layout: bool = True,
) -> Any:
    """The optimizer's step, and with `barrier` a sync; one process has nothing to reduce."""
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        _mark_step()
    return loss


def reduce_gradients(
    optimizer: Any, groups: Any = None, cctx: Any = None, pin_layout: bool = True
) -> None:
    """Of one process: nothing to do."""


# ---- collectives of one process -------------------------------------------------------------


def all_reduce(
    reduce_type: str,
    inputs: Any,
    scale: float = 1.0,
    groups: Any = None,
    cctx: Any = None,
    pin_layout: bool = True,
) -> Any:
    """Of one process: the input, scaled; a list in place."""
    if isinstance(inputs, torch.Tensor):
        return inputs * scale if scale != 1.0 else inputs.clone()
    for t in inputs:
        if scale != 1.0:
            t.mul_(scale)
    return inputs


def all_gather(
    value: Any, dim: int = 0, groups: Any = None, output: Any = None, pin_layout: bool = True
) -> Any:
    """Of one process: the value itself."""
    if output is not None:
        output.copy_(value)
        return output
    return value


def reduce_scatter(
    reduce_type: str, input: Any, scale: float, scatter_dim: int, shard_count: int, **_: Any
) -> Any:
    if shard_count != 1:
        raise RuntimeError(f"reduce_scatter: there is 1 process, found shard_count={shard_count}")
    return input * scale


def all_to_all(
    value: torch.Tensor, split_dimension: int, concat_dimension: int, split_count: int, **_: Any
) -> torch.Tensor:
    if split_count != 1:
        raise RuntimeError(f"all_to_all: there is 1 process, found split_count={split_count}")
    return value.clone()


def collective_permute(value: torch.Tensor, pairs: list[list[int]]) -> torch.Tensor:
    """Zeros where nobody sends to this process."""
    return value.clone() if [0, 0] in [list(p) for p in pairs] else torch.zeros_like(value)


def collective_broadcast(
    tensors: list[torch.Tensor], root_ordinal: int = 0, groups: Any = None, pin_layout: bool = True
) -> None:
    """Of one process: nothing to do."""


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Of one process: runs what is recorded, as it does of many."""
    _mark_step()


def rendezvous(tag: str, payload: bytes = b"", replicas: Any = ()) -> list[bytes]:
    """Of one process: its own payload."""
    return [payload]


xla_rendezvous = rendezvous


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """`reduce_fn` of the one process's data, moved to the CPU."""
    return reduce_fn([_maybe_convert_to_cpu(data)])


send = later("core.xla_model.send", ONE_PROCESS)
recv = later("core.xla_model.recv", ONE_PROCESS)


def _fetch_gradients(optimizer: Any) -> list[torch.Tensor]:
    return [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]


# ---- data -----------------------------------------------------------------------------------


def _maybe_convert_to_cpu(data: Any, convert: bool = True) -> Any:
    if not convert:
        return data
    return pytree.tree_map_only(
        torch.Tensor, lambda t: t.cpu() if t.device.type == "xla" else t, data
    )


def send_cpu_data_to_device(datas: Any, device: Any, input_sharding: Any = None) -> list[Any]:
    """Each with its tensors on the device."""
    if input_sharding is not None:
        later("core.xla_model.send_cpu_data_to_device(input_sharding=)", ONE_PROCESS)()
    return [pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), d) for d in datas]


class ToXlaTensorArena:
    """Converts the tensors that `select_fn` takes, in whatever holds them, with one call."""

    def __init__(
        self, convert_fn: Callable[[list[Any]], list[Any]], select_fn: Callable[[Any], bool]
    ) -> None:
        self._convert, self._select = convert_fn, select_fn

    def transform(self, inputs: Any) -> Any:
        flat, spec = pytree.tree_flatten(inputs)
        at = [i for i, x in enumerate(flat) if self._select(x)]
        for i, x in zip(at, self._convert([flat[i] for i in at]), strict=True):
            flat[i] = x
        return pytree.tree_unflatten(flat, spec)


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
    """torch.save of the data with its tensors on the CPU."""
    torch.save(_maybe_convert_to_cpu(data), file_or_path)


# ---- random numbers -------------------------------------------------------------------------


def set_rng_state(seed: int, device: Any = None) -> None:
    """Seeds the device."""
    torch_pjrt.manual_seed(seed)


def get_rng_state(device: Any = None) -> int:
    """A seed from which the numbers go on."""
    return int(torch.xla.initial_seed())


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
    """A hint to XLA; values do not change."""


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
