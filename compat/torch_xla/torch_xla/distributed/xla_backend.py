"""`init_process_group("xla")`: torch_pjrt registers it."""

import torch.distributed as dist

from .._names import later

ProcessGroupXla = dist.ProcessGroup
new_xla_process_group = later(
    "distributed.xla_backend.new_xla_process_group", "init_process_group('xla')"
)
