"""`torch.distributed` on device xla: `init_process_group("xla")`.

Collectives of xla tensors are recorded: `all_reduce` is an instruction of the program like any op,
nothing is cut, and `DistributedDataParallel` and `torch.distributed`'s functions work as they are.
On a CPU plugin the running program calls gloo, the engine that PyTorch itself uses for CPU tensors.
CPU tensors of the same group go to gloo directly, so object collectives need no device.

    torchrun --nproc_per_node=2 train.py

    torch.distributed.init_process_group("xla")
    model = torch.nn.parallel.DistributedDataParallel(model.to("xla"))
"""

import importlib
from datetime import timedelta
from typing import Any

from . import _C
from ._imports import after_import

__all__ = ["install"]


def _create(options: Any, _backend_options: Any = None) -> Any:
    """The group of one rank, as `torch.distributed` asks for it."""
    dist: Any = importlib.import_module("torch.distributed")

    timeout: Any = options.timeout
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if not dist.is_initialized():  # the group of all processes
        kv = dist.PrefixStore("pjrt/", options.store)
        _C.set_processes(options.group_rank, options.group_size, kv)
    gloo = dist.ProcessGroupGloo(
        dist.PrefixStore("gloo/", options.store),
        options.group_rank,
        options.group_size,
        timeout=timedelta(seconds=seconds),
    )
    return _C.make_process_group(
        name=options.group_id,
        rank=options.group_rank,
        size=options.group_size,
        engine=gloo,
        store=dist.PrefixStore("xla/", options.store),
        timeout_s=seconds,
    )


def _register(module: Any) -> None:
    if "xla" not in module.Backend.backend_list:
        module.Backend.register_backend("xla", _create, extended_api=True, devices=["cpu", "xla"])


def install() -> None:
    """Makes backend "xla" known to torch.distributed, once that is imported."""
    after_import("torch.distributed.distributed_c10d", _register)
