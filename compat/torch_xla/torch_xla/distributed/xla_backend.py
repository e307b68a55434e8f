"""`init_process_group("xla")`: torch_pjrt registers it."""

import os
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed.rendezvous import (
    _env_rendezvous_handler,
    _rendezvous_handlers,
    register_rendezvous_handler,
)

from .. import runtime
from .._names import later
from ..utils.utils import get_free_tcp_ports

ProcessGroupXla = dist.ProcessGroup
new_xla_process_group = later(
    "distributed.xla_backend.new_xla_process_group", "init_process_group('xla')"
)


def _meet(url: str, **kwargs: Any) -> Iterator[Any]:
    """`xla://`: as `env://`; without its variables a group of this process alone."""
    assert not runtime.is_spmd(), (
        "init_process_group('xla'): one process drives a mesh in SPMD mode"
    )
    if "MASTER_ADDR" not in os.environ:
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(get_free_tcp_ports()[0]),
            "RANK": "0", "WORLD_SIZE": "1",
        }  # fmt: skip
    return _env_rendezvous_handler("env://", **kwargs)


if "xla" not in _rendezvous_handlers:
    register_rendezvous_handler("xla", _meet)
