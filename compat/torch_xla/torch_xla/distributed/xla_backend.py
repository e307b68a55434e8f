"""`init_process_group("xla")`: registered by torch_pjrt where it has one."""

from .._names import ONE_PROCESS, later, later_class

ProcessGroupXla = later_class("distributed.xla_backend.ProcessGroupXla", ONE_PROCESS)
new_xla_process_group = later("distributed.xla_backend.new_xla_process_group", ONE_PROCESS)
