"""The private names that code relies on."""  # noqa: N999 - its name

from typing import Any

import torch

import torch_pjrt
from torch_pjrt import _C, metrics

from ._names import ONE_PROCESS, SHARDING, later

_SPMD = (
    "_get_xla_sharding_spec", "_get_xla_sharding_specs", "_get_xla_op_sharding",
    "_xla_mark_sharding", "_xla_clear_sharding", "_get_local_shards", "_get_xla_sharding_type",
    "_mark_manual_sharding", "_load_local_shards", "_spmd_full_to_shard_shape",
    "_spmd_shard_to_full_shape",
)  # fmt: skip
_PROCESSES = (
    "_xla_all_reduce", "_xla_all_gather", "_xla_reduce_scatter", "_xla_all_to_all",
    "_xla_collective_permute", "_xla_send", "_xla_recv",
)  # fmt: skip
globals().update({n: later(f"_XLAC.{n}", SHARDING) for n in _SPMD})
globals().update({n: later(f"_XLAC.{n}", ONE_PROCESS) for n in _PROCESSES})


def _xla_get_tensor_id(t: torch.Tensor) -> int:
    """An id of the tensor's memory: equal for tied weights."""
    return t.untyped_storage()._cdata


_xla_get_tensor_view_alias_id = _xla_get_tensor_id


def _xla_get_devices() -> list[str]:
    return [str(d) for d in torch_pjrt.devices()]


_xla_get_all_devices = _xla_get_devices


def _xla_real_devices(devices: list[str] | None = None) -> list[str]:
    kind = torch_pjrt.runtime.device_type()
    return [f"{kind}:{torch.device(d).index or 0}" for d in devices or _xla_get_devices()]


def _xla_get_default_device() -> str:
    return f"xla:{_C.current_device()}"


def _xla_get_default_device_ordinal() -> int:
    return _C.current_device()


def _xla_set_default_device(device: str) -> str:
    before = _xla_get_default_device()
    torch.xla.set_device(torch.device(device))
    return before


def _xla_device_kind(device: str = "") -> str:
    return torch_pjrt.runtime.device_type()


_xla_get_device_hw_type = _xla_device_kind


def _xla_num_devices() -> int:
    return len(torch_pjrt.devices())


_xla_num_runtime_devices = _xla_num_global_devices = _xla_num_devices


def _xla_get_num_processes() -> int:
    return 1


def _xla_get_process_index() -> int:
    return 0


def _xla_step_marker(device: str = "", devices: Any = (), wait: bool = False) -> None:
    torch_pjrt.sync(wait=wait)


def _xla_sync_multi(
    tensors: Any, devices: Any = (), wait: bool = True, sync_xla_data: bool = True
) -> None:
    torch_pjrt.sync(wait=wait)


def _xla_sync_live_tensors(device: str = "", devices: Any = (), wait: bool = True) -> None:
    torch_pjrt.sync(wait=wait)


def _xla_wait_device_ops(devices: Any = ()) -> None:
    torch_pjrt.wait()


def _xla_get_cpu_tensors(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t.cpu() for t in tensors]


def _xla_memory_info(device: str = "") -> dict[str, int]:
    m = torch_pjrt.memory()
    return {"bytes_used": m["live_bytes"], "bytes_limit": m.get("bytes_limit", 0)}


def _get_xla_tensors_text(tensors: list[torch.Tensor]) -> str:
    return torch_pjrt.graph.of(tensors).text


def _get_xla_tensors_hlo(tensors: list[torch.Tensor]) -> str:
    return torch_pjrt.graph.of(tensors).hlo


_get_stablehlo = _get_xla_tensors_hlo


def _get_xla_tensors_dot(tensors: list[torch.Tensor]) -> str:
    return torch_pjrt.graph.of(tensors).dot


def _get_graph_hash(tensors: list[torch.Tensor]) -> str:
    return torch_pjrt.graph.of(tensors).key


def _get_xla_tensor_debug_info(t: torch.Tensor) -> str:
    return f"XLA Shape: {list(t.shape)} {t.dtype}\nstate: {torch_pjrt.state(t)}\n"


def _check_tensor_need_materialization(tensors: list[torch.Tensor]) -> list[bool]:
    return [t.device.type == "xla" and torch_pjrt.state(t) == "ir" for t in tensors]


def _xla_set_rng_seed(seed: int, device: str = "") -> None:
    torch_pjrt.manual_seed(seed)


def _xla_get_rng_seed(device: str = "") -> int:
    return torch.xla.initial_seed()


def _xla_counter_names() -> list[str]:
    return list(metrics.counters())


def _xla_counter_value(name: str) -> int | None:
    return metrics.counters().get(name)


def _clear_xla_counters() -> None:
    metrics.clear()


_clear_xla_metrics = _clear_xla_counters


def _xla_metric_names() -> list[str]:
    return list(metrics.timers())


def _xla_metrics_report() -> str:
    return metrics.report()


def _xla_increment_counter(name: str, value: int) -> None:
    """Counters of others are not kept."""


def _get_executed_fallback_ops() -> list[str]:
    return [n for n in metrics.counters() if n.startswith("aten::")]


def _xla_get_num_cached_compilation_graph() -> int:
    return metrics.compiles()


def _set_use_eager_mode(on: bool) -> None:
    torch_pjrt.eager_mode(on)


def _get_use_eager_mode() -> bool:
    return _C.eager_mode()


def _set_ir_debug(on: bool) -> None:
    (torch_pjrt.module_scopes.on if on else torch_pjrt.module_scopes.off)()


def _set_xla_all_numbers_special_scalars(on: bool) -> None:
    """Numbers are inputs of the program in any case."""


def _get_xla_all_numbers_special_scalars() -> bool:
    return True


def _init_xla_lazy_backend() -> None:
    """It is there from the import on."""


_init_computation_client = _prepare_to_exit = _init_xla_lazy_backend


def _xla_runtime_is_initialized() -> bool:
    return torch_pjrt.runtime.is_running()
