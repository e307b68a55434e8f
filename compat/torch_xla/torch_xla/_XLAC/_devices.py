"""Devices, steps, random numbers, counters."""

import os
from typing import Any

import torch

import torch_pjrt
from torch_pjrt import _C

from .. import _counts, _processes

__all__ = [
    "_clear_pending_irs", "_clear_xla_counters", "_clear_xla_metrics", "_from_dlpack",
    "_get_base_seed_as_tensor", "_get_executed_fallback_ops", "_get_git_revs",
    "_get_seed_info_id", "_get_use_eager_mode",
    "_get_xla_all_numbers_special_scalars", "_get_xla_enable_device_data_cache",
    "_get_xla_handle_special_scalars", "_init_computation_client",
    "_init_xla_lazy_backend", "_prepare_to_exit", "_set_use_eager_mode",
    "_set_xla_all_numbers_special_scalars", "_set_xla_enable_device_data_cache",
    "_set_xla_handle_special_scalars", "_short_xla_metrics_report", "_to_dlpack",
    "_xla_computation_cache_is_initialized", "_xla_counter_names", "_xla_counter_value",
    "_xla_device_kind", "_xla_force_spmd_device", "_xla_get_all_device_attributes",
    "_xla_get_all_devices", "_xla_get_all_runtime_devices", "_xla_get_default_device",
    "_xla_get_default_device_ordinal", "_xla_get_device_attributes", "_xla_get_device_hw_type",
    "_xla_get_device_ordinal", "_xla_get_devices", "_xla_get_mat_mul_precision",
    "_xla_get_num_cached_compilation_graph", "_xla_get_num_processes",
    "_xla_get_platform_version", "_xla_get_process_index", "_xla_get_replication_devices",
    "_xla_get_replication_devices_count", "_xla_get_rng_seed", "_xla_get_runtime_devices",
    "_xla_increment_counter", "_xla_memory_info", "_xla_metric_data", "_xla_metric_names",
    "_xla_metrics_report", "_xla_num_devices", "_xla_num_global_devices",
    "_xla_num_runtime_devices", "_xla_real_devices", "_xla_runtime_is_initialized",
    "_xla_set_default_device", "_xla_set_mat_mul_precision", "_xla_set_replication_devices",
    "_xla_set_rng_seed", "_xla_step_marker", "_xla_sync_live_tensors", "_xla_sync_multi",
    "_xla_wait_device_ops",
]  # fmt: skip

_replication: list[str] = []


def _all() -> list[str]:
    _processes.before_client()
    return [str(d) for d in torch_pjrt.devices()]


def _xla_get_devices() -> list[str]:
    """In SPMD mode one stands for all."""
    return _all()[:1] if os.environ.get("XLA_USE_SPMD") == "1" else _all()


_xla_get_all_devices = _xla_get_devices


def _xla_real_devices(devices: list[str] | None = None) -> list[str]:
    kind = _xla_device_kind()
    return [f"{kind}:{torch.device(d).index or 0}" for d in devices or _xla_get_devices()]


def _xla_get_runtime_devices() -> list[str]:
    return _xla_real_devices(_all())


_xla_get_all_runtime_devices = _xla_get_runtime_devices


def _xla_get_default_device() -> str:
    return f"xla:{_C.current_device()}"


def _xla_get_default_device_ordinal() -> int:
    return _C.current_device()


def _xla_get_device_ordinal(device: str) -> int:
    return torch.device(device).index or 0


def _xla_set_default_device(device: str) -> str:
    before = _xla_get_default_device()
    torch.xla.set_device(torch.device(device))  # type: ignore[attr-defined]
    return before


def _xla_device_kind(device: str = "") -> str:
    return torch_pjrt.runtime.device_type()


_xla_get_device_hw_type = _xla_device_kind


def _xla_num_devices() -> int:
    return len(_xla_get_devices())


_xla_num_global_devices = _xla_num_devices


def _xla_num_runtime_devices() -> int:
    return len(_all())


def _xla_get_all_device_attributes() -> list[dict[str, Any]]:
    kind = _xla_device_kind()
    return [{"name": f"{kind}:{d['id']}", **d} for d in torch_pjrt.runtime.devices()]


def _xla_get_device_attributes(device: str) -> dict[str, Any]:
    return _xla_get_all_device_attributes()[int(device.rpartition(":")[2] or 0)]


def _xla_get_platform_version(device: str = "") -> str:
    return torch_pjrt.runtime.platform_version()


def _xla_get_num_processes() -> int:
    return _processes.world()


def _xla_get_process_index() -> int:
    return _processes.rank()


def _xla_set_replication_devices(devices: list[str]) -> None:
    _replication[:] = devices


def _xla_get_replication_devices() -> list[str]:
    return list(_replication)


def _xla_get_replication_devices_count() -> int:
    return len(_replication)


def _xla_force_spmd_device() -> None:
    """There is no virtual device: marked tensors are on all of a mesh."""


# ---- steps ----------------------------------------------------------------------------------


def _xla_step_marker(
    device: str = "", devices: Any = (), wait: bool = False, reset_scope: bool = True
) -> None:
    _counts.add("MarkStep")
    torch_pjrt.sync(wait=wait)


def _xla_sync_multi(
    tensors: Any, devices: Any = (), wait: bool = True, sync_xla_data: bool = True
) -> None:
    torch_pjrt.sync(wait=wait)


def _xla_sync_live_tensors(device: str = "", devices: Any = (), wait: bool = True) -> None:
    torch_pjrt.sync(wait=wait)


def _xla_wait_device_ops(devices: Any = ()) -> None:
    torch_pjrt.wait()


def _clear_pending_irs(device: str = "") -> None:
    """Runs what is pending: nothing of it is lost here."""
    torch_pjrt.sync()


def _xla_memory_info(device: str = "") -> dict[str, int]:
    m = torch_pjrt.memory()
    return {"bytes_used": m["live_bytes"], "bytes_limit": m.get("bytes_limit", 0)}


def _set_use_eager_mode(on: bool) -> None:
    torch_pjrt.eager_mode(on)


def _get_use_eager_mode() -> bool:
    return _C.eager_mode()


def _nothing(*_: Any, **__: Any) -> None:
    """It is so in any case."""


_init_xla_lazy_backend = _init_computation_client = _prepare_to_exit = _nothing
# Numbers are inputs of programs, and small values on the host are found again.
_set_xla_all_numbers_special_scalars = _set_xla_handle_special_scalars = _nothing
_set_xla_enable_device_data_cache = _nothing


def _get_xla_all_numbers_special_scalars() -> bool:
    return True


_get_xla_handle_special_scalars = _get_xla_all_numbers_special_scalars
_get_xla_enable_device_data_cache = _get_xla_all_numbers_special_scalars


def _xla_runtime_is_initialized() -> bool:
    return torch_pjrt.runtime.is_running()


_xla_computation_cache_is_initialized = _xla_runtime_is_initialized


def _get_git_revs() -> dict[str, str]:
    return {"xla": f"torch_pjrt {torch_pjrt.__version__}", "torch": torch.version.git_version or ""}


def _xla_set_mat_mul_precision(precision: str) -> None:
    from .. import backends

    backends.set_mat_mul_precision(precision)


def _xla_get_mat_mul_precision() -> str:
    from .. import backends

    return backends.get_mat_mul_precision()


# ---- random numbers -------------------------------------------------------------------------


def _xla_set_rng_seed(seed: int, device: str = "") -> None:
    torch_pjrt.manual_seed(seed)


def _xla_get_rng_seed(device: str = "") -> int:
    return int(torch.xla.initial_seed())  # type: ignore[attr-defined]


def _get_base_seed_as_tensor(device: str = "") -> torch.Tensor:
    return torch.tensor(_xla_get_rng_seed() % 2**63, device="xla")


def _get_seed_info_id() -> int:
    """Marks a seed among the inputs of a program: there is none."""
    return -127389


# ---- what happened --------------------------------------------------------------------------


def _xla_counter_names() -> list[str]:
    return list(_counts.counters())


def _xla_counter_value(name: str) -> int | None:
    return _counts.counters().get(name)


def _xla_increment_counter(name: str, value: int) -> None:
    _counts.add(name, value)


def _clear_xla_counters() -> None:
    _counts.clear(counters=True)


def _clear_xla_metrics() -> None:
    _counts.clear(metrics=True)


def _xla_metric_names() -> list[str]:
    return list(_counts.metrics())


def _xla_metric_data(name: str) -> Any:
    return _counts.metrics().get(name)


def _xla_metrics_report() -> str:
    return _counts.report()


def _short_xla_metrics_report(counters: Any, metrics: Any) -> str:
    return _counts.report(list(counters), list(metrics))


def _get_executed_fallback_ops() -> list[str]:
    return [n for n in _counts.counters() if "::" in n and not n.startswith("xla::")]


def _xla_get_num_cached_compilation_graph() -> int:
    return torch_pjrt._C.programs_cached()


def _to_dlpack(t: torch.Tensor) -> Any:
    return torch.utils.dlpack.to_dlpack(t.cpu())


def _from_dlpack(data: Any) -> torch.Tensor:
    return torch.from_dlpack(data).to("xla")
