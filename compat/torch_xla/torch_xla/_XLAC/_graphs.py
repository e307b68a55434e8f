"""Graphs and the tensors that wait for them."""

import os
from typing import Any

import torch

import torch_pjrt
from torch_pjrt import _C

__all__ = [
    "_check_device_tensor_need_materialization", "_check_tensor_need_materialization",
    "_get_allow_execution", "_get_current_graph_name", "_get_graph_hash", "_get_ir_debug",
    "_get_stablehlo", "_get_tensors_handle", "_get_xla_tensor_debug_info",
    "_get_xla_tensor_dimension_size", "_get_xla_tensor_shape_type", "_get_xla_tensors_dot",
    "_get_xla_tensors_hlo", "_get_xla_tensors_text", "_on_ready_callback", "_replace_xla_tensor",
    "_set_allow_execution", "_set_current_graph_name", "_set_ir_debug",
    "_unique_id_for_ir_and_data", "_unsafe_buffer_pointer", "_xla_get_cpu_tensors",
    "_xla_get_tensor_id", "_xla_get_tensor_view_alias_id", "_xla_tensors_from_aten",
    "_xla_tensors_report", "_xla_warm_up_cache", "short_type",
]  # fmt: skip

_state: dict[str, Any] = {"name": "", "ir_debug": False, "allow": True}
_SHORT = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "s64", torch.int32: "s32", torch.int16: "s16", torch.int8: "s8",
    torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
    torch.bool: "pred", torch.complex64: "c64", torch.complex128: "c128",
    torch.float8_e4m3fn: "f8e4m3fn", torch.float8_e5m2: "f8e5m2",
}  # fmt: skip


def short_type(t: torch.Tensor) -> str:
    """As in f32[4,8]."""
    return f"{_SHORT.get(t.dtype, t.dtype)}[{','.join(map(str, t.shape))}]"


def _plain(tensors: Any) -> list[torch.Tensor]:
    return [t.as_subclass(torch.Tensor) if type(t) is not torch.Tensor else t for t in tensors]


def _xla_get_tensor_id(t: torch.Tensor) -> int:
    """An id of the tensor's memory: equal for tied weights."""
    if t.device.type != "xla":
        raise RuntimeError(f"Input tensor is not an XLA tensor: {t.device.type} {t.dtype}")
    return t.untyped_storage()._cdata


_xla_get_tensor_view_alias_id = _unique_id_for_ir_and_data = _xla_get_tensor_id


def _xla_get_cpu_tensors(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t.cpu() for t in tensors]


def _xla_tensors_from_aten(tensors: list[torch.Tensor], devices: list[str]) -> list[torch.Tensor]:
    return [t.to(d) for t, d in zip(tensors, devices, strict=True)]


def _replace_xla_tensor(this: torch.Tensor, other: torch.Tensor) -> None:
    """Gives `this` the other's value."""
    this.data = other.data


def _lines(tensors: Any) -> list[str]:
    """A line a node, as torch_pjrt.graph has it; the last one is of the results, with types."""
    plain = _plain(tensors)
    lines = torch_pjrt.graph.of(plain).text.strip().splitlines()
    lines = [line.replace("= device_data", "= xla::device_data") for line in lines]
    return [*lines[:-1], f"{lines[-1]} : {', '.join(map(short_type, plain))}"] if lines else []


def _get_xla_tensors_text(tensors: list[torch.Tensor]) -> str:
    return "\n".join(["IR {", *_lines(tensors), "}", ""])


def _get_xla_tensors_hlo(tensors: list[torch.Tensor]) -> str:
    return torch_pjrt.graph.of(_plain(tensors)).hlo


def _get_stablehlo(tensors: Any = (), device: str = "", devices: Any = (), emit_bytecode: bool = False) -> Any:  # noqa: E501 # fmt: skip
    text = _get_xla_tensors_hlo(tensors)
    return text.encode() if emit_bytecode else text


def _get_xla_tensors_dot(tensors: list[torch.Tensor]) -> str:
    return torch_pjrt.graph.of(_plain(tensors)).dot


def _get_graph_hash(tensors: list[torch.Tensor]) -> bytes:
    return torch_pjrt.graph.of(_plain(tensors)).key.encode()


def _get_xla_tensor_debug_info(t: torch.Tensor) -> str:
    if t.device.type != "xla":
        return "Not a XLATensor\n"
    t = _plain([t])[0]
    state, name = torch_pjrt.state(t), short_type(t)
    pending, on_host = state in ("ir", "view"), state == "host"
    ir = "\n  ".join(_lines([t])[-2:]) if pending else "None"
    device = "SPMD:0" if os.environ.get("XLA_USE_SPMD") == "1" else str(t.device)
    lines = [f"XLA Shape: {name}", f"Device: {device}", f"State: {state}", f"IR: {ir}"]
    lines += [f"Tensor on host: {f'with size {list(t.shape)}' if on_host else None}"]
    if not pending and not on_host:
        lines += [f"Operand of ops: xla::device_data, {name}"]
    return "\n".join([*lines, f"XLAData: {_data_info(t, device, pending or on_host)}"]) + "\n"


def _data_info(t: torch.Tensor, device: str, elsewhere: bool) -> str:
    """Where its bytes are, if devices have them."""
    if elsewhere:
        return "None"
    handle = _C.sharding_of(t)[0]
    lines = ["", f"Data Device: {device}", f"Data Shape: {short_type(t)}"]
    if handle is not None:
        from ._sharding import _text

        lines[0] = "XLAShardedData"
        lines += [f"OpSharding: {_text(handle)}", f"NumShards: {len(handle.devices)}"]
    return "\n  ".join(lines)


def _get_xla_tensor_shape_type(t: torch.Tensor) -> str:
    return short_type(t).partition("[")[0]


def _get_xla_tensor_dimension_size(t: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.tensor(t.shape[dim], dtype=torch.int32, device=t.device)


def _check_tensor_need_materialization(tensors: list[torch.Tensor]) -> list[bool]:
    return [t.device.type == "xla" and torch_pjrt.state(t) == "ir" for t in tensors]


def _check_device_tensor_need_materialization(device: str) -> list[bool]:
    return []


def _get_tensors_handle(tensors: list[torch.Tensor]) -> list[int]:
    """A number for the memory of each."""
    return [_xla_get_tensor_id(t) for t in tensors]


def _unsafe_buffer_pointer(t: torch.Tensor) -> int:
    """The address by which PyTorch knows it: no program reads there."""
    return _C.address_of(t) or 0


def _xla_warm_up_cache(tensors: list[torch.Tensor], devices: Any = ()) -> None:
    """Compiles and runs what the tensors wait for."""
    torch_pjrt.sync()


def _xla_tensors_report(nodes_threshold: int, device: str = "") -> str:
    """Where memory is held, a line each."""
    lines = sorted(_C.live_lines(), key=lambda line: -line[1])
    return "\n".join(f"{where}: {a} {b}" for where, a, b in lines)


def _on_ready_callback(t: torch.Tensor, callback: Any) -> None:
    from ..experimental.callback import on_ready_callback

    on_ready_callback(t, callback)


def _set_ir_debug(on: bool) -> None:
    _state["ir_debug"] = on
    (torch_pjrt.module_scopes.on if on else torch_pjrt.module_scopes.off)()


def _get_ir_debug() -> bool:
    return bool(_state["ir_debug"]) or os.environ.get("XLA_IR_DEBUG") == "1"


def _set_current_graph_name(name: str) -> None:
    _state["name"] = name


def _get_current_graph_name() -> str:
    return str(_state["name"])


def _set_allow_execution(allow: bool) -> None:
    """While it is off, what would run raises."""
    _state["allow"] = allow
    before = _C.exchange_no_cuts(0 if allow else 1)
    _state.setdefault("before", before)


def _get_allow_execution() -> bool:
    return bool(_state["allow"])
