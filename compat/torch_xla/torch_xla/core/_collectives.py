"""Collectives between processes, by torch.distributed; of one process the values themselves."""

from collections.abc import Callable
from typing import Any

import torch

import torch_pjrt

from .. import _processes

REDUCE_SUM, REDUCE_MUL, REDUCE_AND = "sum", "mul", "and"
REDUCE_OR, REDUCE_MIN, REDUCE_MAX = "or", "min", "max"
_OPS = {
    REDUCE_SUM: "SUM", REDUCE_MUL: "PRODUCT", REDUCE_MIN: "MIN", REDUCE_MAX: "MAX",
    REDUCE_AND: "BAND", REDUCE_OR: "BOR",
}  # fmt: skip


def _dist() -> Any:
    """torch.distributed, with a group where processes were launched as several."""
    import torch.distributed as dist

    _processes.start()
    return dist


def _size(groups: Any) -> int:
    """Of the group that this process is in."""
    if _processes.world() == 1:
        return 1
    return _dist().get_world_size(_processes.group_of(groups))


def _reduce_(t: torch.Tensor, reduce_type: str, groups: Any) -> torch.Tensor:
    if _size(groups) > 1:
        op = getattr(_dist().ReduceOp, _OPS[reduce_type])
        if t.dtype is torch.bool and reduce_type in (REDUCE_AND, REDUCE_OR):
            op = _dist().ReduceOp.PRODUCT if reduce_type == REDUCE_AND else _dist().ReduceOp.SUM
        _dist().all_reduce(t, op, group=_processes.group_of(groups))
    return t


def all_reduce(
    reduce_type: str,
    inputs: Any,
    scale: float = 1.0,
    groups: Any = None,
    cctx: Any = None,
    pin_layout: bool = True,
) -> Any:
    """Of a tensor a new one; a list in place. `scale` multiplies."""
    if reduce_type not in _OPS:
        raise ValueError(f"Invalid reduce type: {reduce_type}")
    if isinstance(inputs, torch.Tensor):
        out = _reduce_(inputs.clone(), reduce_type, groups)
        return out * scale if scale != 1.0 else out
    with torch.no_grad():
        for t in inputs:
            _reduce_(t, reduce_type, groups)
            if scale != 1.0:
                t.mul_(scale)
    return inputs


def _gathered(value: torch.Tensor, dim: int, groups: Any) -> torch.Tensor:
    size = _size(groups)
    if size == 1:
        return value.clone()
    moved = value.movedim(dim, 0).contiguous()
    out = moved.new_empty((size * moved.shape[0], *moved.shape[1:]))
    _dist().all_gather_into_tensor(out, moved, group=_processes.group_of(groups))
    return out.movedim(0, dim)


def all_gather(
    value: Any,
    dim: int = 0,
    groups: Any = None,
    output: Any = None,
    pin_layout: bool = True,
    **_: Any,
) -> Any:
    """Those of all processes side by side along `dim`; of a list each."""
    if isinstance(value, torch.Tensor):
        out = _gathered(value, dim, groups)
        return out if output is None else output.copy_(out)
    outs = [_gathered(v, dim, groups) for v in value]
    if output is None:
        return outs
    return [to.copy_(o) for to, o in zip(output, outs, strict=True)]


def _scattered(
    reduce_type: str, t: torch.Tensor, scale: float, dim: int, count: int, groups: Any
) -> torch.Tensor:
    size = _size(groups)
    if count != size:
        raise RuntimeError(f"reduce_scatter: shard_count={count} in a group of {size}")
    if size > 1:
        moved = t.movedim(dim, 0).contiguous()
        out = moved.new_empty((moved.shape[0] // size, *moved.shape[1:]))
        op = getattr(_dist().ReduceOp, _OPS[reduce_type])
        _dist().reduce_scatter_tensor(out, moved, op, group=_processes.group_of(groups))
        t = out.movedim(0, dim)
    return t * scale


def reduce_scatter(
    reduce_type: str,
    input: Any,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Any = None,
    output: Any = None,
    pin_layout: bool = True,
    **_: Any,
) -> Any:
    """Gives this process's part, along `scatter_dim`, of what is reduced; of a list each."""
    more = (scale, scatter_dim, shard_count, groups)
    if isinstance(input, torch.Tensor):
        out = _scattered(reduce_type, input, *more)
        return out if output is None else output.copy_(out)
    outs = [_scattered(reduce_type, t, *more) for t in input]
    if output is None:
        return outs
    return [to.copy_(o) for to, o in zip(output, outs, strict=True)]


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Any = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Part n of `value` goes to process n; what comes is put side by side."""
    size = _size(groups)
    if split_count != size:
        raise RuntimeError(f"all_to_all: split_count={split_count} in a group of {size}")
    if size == 1:
        return value.clone()
    parts = torch.stack(value.chunk(size, split_dimension)).contiguous()
    out = torch.empty_like(parts)
    _dist().all_to_all_single(out, parts, group=_processes.group_of(groups))
    return torch.cat(out.unbind(0), concat_dimension)


def collective_permute(value: torch.Tensor, pairs: list[list[int]]) -> torch.Tensor:
    """What the source among `pairs` (source, target) has; zeros where nobody sends."""
    me, out = _processes.rank(), torch.zeros_like(value)
    sends = [target for source, target in pairs if source == me]
    takes = [source for source, target in pairs if target == me]
    if me in sends:
        out = value.clone()
    others = [target for target in sends if target != me]
    asked = [_dist().isend(value.contiguous(), target) for target in others]
    for source in takes:
        if source != me:
            _dist().recv(out, source)
    for work in asked:
        work.wait()
    return out


def send(value: torch.Tensor, channel_id: int) -> torch.Tensor:
    """To the process of that number."""
    _dist().send(value, channel_id)
    return value


def recv(output: torch.Tensor, channel_id: int) -> torch.Tensor:
    """From the process of that number."""
    _dist().recv(output, channel_id)
    return output


def collective_broadcast(
    tensors: list[torch.Tensor], root_ordinal: int = 0, groups: Any = None, pin_layout: bool = True
) -> None:
    """The root's values, in place."""
    if _size(groups) > 1:
        with torch.no_grad():
            for t in tensors:
                _dist().broadcast(t, root_ordinal, group=_processes.group_of(groups))


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Parameters and buffers of the first process, on all."""
    collective_broadcast([*model.parameters(), *model.buffers()])
    torch_pjrt.sync()


def rendezvous(tag: str, payload: bytes = b"", replicas: Any = ()) -> list[bytes]:
    """Waits for all processes; what each of them brought."""
    if _processes.world() == 1:
        return [payload]
    out: list[Any] = [None] * _processes.world()
    _dist().all_gather_object(out, payload)
    return out


xla_rendezvous = rendezvous


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """`reduce_fn` of every process's data, moved to the CPU."""
    from .xla_model import _maybe_convert_to_cpu

    mine = _maybe_convert_to_cpu(data)
    if _processes.world() == 1:
        return reduce_fn([mine])
    out: list[Any] = [None] * _processes.world()
    _dist().all_gather_object(out, mine)
    return reduce_fn(out)


# ---- gradients ------------------------------------------------------------------------------


def all_reduce_bucketized_gradients(
    gradients: list[torch.Tensor], scale: float, groups: Any, pin_layout: bool = True,
    bucket_cap_mb: int = 0,
) -> None:  # fmt: skip
    """In place. Buckets are the program's own business."""
    all_reduce(REDUCE_SUM, gradients, scale, groups)


def reduce_gradients(
    optimizer: Any, groups: Any = None, cctx: Any = None, pin_layout: bool = True
) -> None:
    """Their mean over the processes, in place."""
    from .xla_model import _fetch_gradients

    size = _size(groups)
    if size > 1:
        all_reduce(REDUCE_SUM, _fetch_gradients(optimizer), 1.0 / size, groups)


def all_gather_bucketized(
    input_list: list[torch.Tensor], dim: int = 0, groups: Any = None, output: Any = None,
    pin_layout: bool = False, bucket_cap_mb: int = 160,
) -> Any:  # fmt: skip
    """all_gather of each."""
    return all_gather(input_list, dim, groups, output)


def reduce_scatter_bucketized(
    reduce_type: str, input_list: list[torch.Tensor], scale: float, scatter_dim: int,
    shard_count: int, groups: Any = None, output: Any = None, pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> Any:  # fmt: skip
    """reduce_scatter of each."""
    return reduce_scatter(reduce_type, input_list, scale, scatter_dim, shard_count, groups, output)


class CoalescingBuckets:
    """Tensors that are given to a function some at a time."""

    def __init__(
        self, func: Callable[..., Any], input_list: Any, output_list: Any = None,
        bucket_cap_mb: int = 160,
    ) -> None:  # fmt: skip
        self._func, self._inputs, self._outputs = func, list(input_list), output_list
        self._cap = bucket_cap_mb * 2**20
        self.results: list[Any] = []

    def __call__(self) -> Any:
        start, size = 0, 0
        for i, t in enumerate(self._inputs):
            size += t.numel() * t.element_size()
            if size > self._cap:
                self._flush(start, i + 1)
                start, size = i + 1, 0
        if start < len(self._inputs):
            self._flush(start, len(self._inputs))
        return self._outputs if self._outputs is not None else self.results

    def _flush(self, start: int, end: int) -> None:
        outs = self._outputs[start:end] if self._outputs is not None else None
        self.results += self._func(self._inputs[start:end], outs) or []


def create_optimized_replica_groups() -> None:
    """None: all processes."""
