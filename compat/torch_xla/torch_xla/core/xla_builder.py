"""Functions written op by op. An xb.Op stands for a tensor: each of its ops is recorded as is."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_pjrt import _control

from .._internal.jax_workarounds import (
    jax_env_context,
    jax_import_guard,
    maybe_get_jax,
    maybe_get_torchax,
    requires_jax,
)
from .._names import later
from ._builder_ops import MORE

__all__ = [
    "CompiledCallableWithCache", "FlattenedInputFunc", "JaxCallable", "JaxFlattenedInputFunc", "Op",
    "Shape", "Type", "XlaCallable", "call_jax", "computation_from_module_proto", "create_builder",
    "create_computation", "create_placeholder_tensor", "get_computation_hlo", "jax_env_context",
    "jax_import_guard", "maybe_get_jax", "maybe_get_torchax", "mkleaf", "mkop", "mkparam",
    "mkshape", "requires_jax", "run", "tensor_shape", "xla_computation_as_func",
]  # fmt: skip


class Type:
    """Names of element types."""

    F64, F32, BF16, F16 = "f64", "f32", "bf16", "f16"
    U64, S64, U32, S32, U16, S16, U8, S8 = "u64", "s64", "u32", "s32", "u16", "s16", "u8", "s8"
    C64, C128, PRED = "c64", "c128", "pred"


_XLA_PT_TYPE_MAP = {
    Type.F64: torch.float64, Type.F32: torch.float32, Type.BF16: torch.bfloat16,
    Type.F16: torch.float16, Type.U64: torch.uint64, Type.S64: torch.int64,
    Type.U32: torch.uint32, Type.S32: torch.int32, Type.U16: torch.uint16,
    Type.S16: torch.int16, Type.U8: torch.uint8, Type.S8: torch.int8,
    Type.C64: torch.complex64, Type.C128: torch.complex128, Type.PRED: torch.bool,
}  # fmt: skip
_PT_XLA_TYPE_MAP = {v: k for k, v in _XLA_PT_TYPE_MAP.items()}


class Shape:
    """Element type and sizes."""

    def __init__(self, dtype: str, sizes: Sequence[int]) -> None:
        self._dtype, self._sizes = dtype, tuple(sizes)

    dtype = property(lambda self: self._dtype)
    sizes = property(lambda self: self._sizes)
    rank = property(lambda self: len(self._sizes))

    def numel(self) -> int:
        return int(torch.Size(self._sizes).numel())

    def as_scalar(self) -> "Shape":
        return Shape(self._dtype, ())

    def is_dynamic(self) -> bool:
        return False

    is_dynamic_dimension = is_dynamic

    def as_list(self) -> list[Any]:
        return [self._dtype, self._sizes]


Tensors = Any  # a tensor, or a tuple of them


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Op) else x


class Op:
    """A value: a tensor, or a tuple of values."""

    def __init__(self, value: Tensors) -> None:
        self.value = tuple(map(_value, value)) if isinstance(value, tuple) else value

    # ---- what it is ----
    def builder(self) -> torch.device:
        """Where constants of the same function are made."""
        first = self.value
        while isinstance(first, tuple):
            first = first[0]
        return first.device

    def shape(self) -> Any:
        if isinstance(self.value, tuple):
            return tuple(Op(v).shape() for v in self.value)
        return Shape(_PT_XLA_TYPE_MAP[self.value.dtype], self.value.shape)

    def get_tuple_element(self, index: int) -> "Op":
        return Op(self.value[index])

    # ---- types ----
    @staticmethod
    def to_torch_type(dtype: str) -> torch.dtype:
        return _XLA_PT_TYPE_MAP[dtype]

    @staticmethod
    def from_torch_type(dtype: torch.dtype) -> str:
        return _PT_XLA_TYPE_MAP[dtype]

    def cast(self, dtype: str) -> "Op":
        return Op(self.value.to(_XLA_PT_TYPE_MAP[dtype]))

    def bitcast(self, dtype: str) -> "Op":
        return Op(self.value.view(_XLA_PT_TYPE_MAP[dtype]))

    # ---- constants ----
    @staticmethod
    def constant(builder: torch.device, value: Any) -> "Op":
        return Op(torch.as_tensor(value).to(builder))

    @staticmethod
    def scalar(builder: torch.device, value: Any, dtype: str | None = None) -> "Op":
        as_type = None if dtype is None else _XLA_PT_TYPE_MAP[dtype]
        return Op(torch.tensor(value, dtype=as_type, device=builder))

    @staticmethod
    def zero(builder: torch.device, dtype: str | None = None) -> "Op":
        return Op.scalar(builder, 0, dtype)

    @staticmethod
    def one(builder: torch.device, dtype: str | None = None) -> "Op":
        return Op.scalar(builder, 1, dtype)

    @staticmethod
    def iota(builder: torch.device, shape: Shape, iota_dimension: int) -> "Op":
        sizes = shape.sizes
        line = torch.arange(sizes[iota_dimension], device=builder)
        line = line.to(_XLA_PT_TYPE_MAP[shape.dtype])
        view = [-1 if d == iota_dimension else 1 for d in range(len(sizes))]
        return Op(line.view(view).expand(sizes))

    # ---- control ----
    @staticmethod
    def tuple(ops: Sequence["Op"], builder: Any = None) -> "Op":
        return Op(tuple(ops))

    @staticmethod
    def mkwhile(ops: Sequence["Op"], cond_fn: Callable[..., Any], body_fn: Callable[..., Any], **kw: Any) -> "Op":  # noqa: E501 # fmt: skip
        """`ops = body_fn(*ops)` while cond_fn(*ops), inside the program."""
        carried = [o.value for o in ops]
        out = _control.while_loop("xb.Op.mkwhile", _on_ops(cond_fn), _on_ops(body_fn), carried)
        return Op(tuple(out))

    def mkconditional(
        self, ops: Sequence["Op"], true_fn: Callable[..., Any], false_fn: Callable[..., Any]
    ) -> "Op":
        out = _control.branch(
            "xb.Op.mkconditional", self.value, _on_ops(true_fn), _on_ops(false_fn),
            [o.value for o in ops],
        )  # fmt: skip
        return Op(tuple(out) if len(out) > 1 else out[0])


for _name, _fn in MORE.items():
    setattr(Op, _name, _fn(Op) if isinstance(_fn, type) else _fn)


def _flat(out: Any) -> list[torch.Tensor]:
    value = _value(out)
    if isinstance(value, tuple | list):
        return [t for v in value for t in _flat(v)]
    return [value]


def _on_ops(fn: Callable[..., Any]) -> Callable[..., list[torch.Tensor]]:
    """`fn` of Ops as one of tensors."""
    return lambda *tensors: _flat(fn(*map(Op, tensors)))


def run(fn: Callable[..., Any], tensors: Sequence[Any], kwargs: Any) -> tuple[torch.Tensor, ...]:
    """`fn` of an Op for each tensor: its tensors."""
    return tuple(_flat(fn(*map(Op, tensors), **kwargs)))


class _Computation:
    """A function of Ops under a name; its tensors come with the call."""

    def __init__(self, name: str, fn: Callable[..., Any], shapes: Sequence[Any]) -> None:
        self.name, self.fn, self.shapes = name, fn, list(shapes)


def create_computation(
    name: str, fn: Callable[..., Any], shapes: Sequence[Any], **kwargs: Any
) -> _Computation:
    """For torch_xla._XLAC._xla_user_computation."""
    return _Computation(name, lambda *ops: fn(*ops, **kwargs), shapes)


def create_builder(name: str) -> torch.device:
    return torch.device("xla")


def mkshape(stype: str, sizes: Sequence[int]) -> Shape:
    return Shape(stype, sizes)


def tensor_shape(tensor: Any, device: Any = "") -> Any:
    if isinstance(tensor, list | tuple):
        return [tensor_shape(t, device) for t in tensor]
    return Op(tensor).shape()


def create_placeholder_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of the device whose value nobody may ask for."""
    from .. import _XLAC

    return _XLAC._xla_create_placeholder_tensor(list(shape), dtype)


_NO_HLO = "torch_xla.core.xla_builder.Op, or torch_pjrt.export for programs as text"
mkop = later("core.xla_builder.mkop", _NO_HLO)
mkparam = later("core.xla_builder.mkparam", _NO_HLO)
mkleaf = later("core.xla_builder.mkleaf", _NO_HLO)
get_computation_hlo = later("core.xla_builder.get_computation_hlo", _NO_HLO)
computation_from_module_proto = later("core.xla_builder.computation_from_module_proto", _NO_HLO)
_NO_JAX = "the function in PyTorch: torch_pjrt brings no jax"
call_jax = later("core.xla_builder.call_jax", _NO_JAX)
xla_computation_as_func = later("core.xla_builder.xla_computation_as_func", _NO_JAX)


class _Refused:
    """Programs of jax's functions."""

    def __init__(self, *_: Any, **__: Any) -> None:
        call_jax()


class XlaCallable(_Refused):
    """Refused."""


class JaxCallable(_Refused):
    """Refused."""


class JaxFlattenedInputFunc(_Refused):
    """Refused."""


class CompiledCallableWithCache(_Refused):
    """Refused."""


class FlattenedInputFunc:
    """A function of pytrees as one of flat lists."""

    def __init__(self, original_fn: Callable[..., Any]) -> None:
        self.original_fn = original_fn

    def flatten_inputs(self, args: Any, kwargs: Any) -> list[Any]:
        from torch.utils import _pytree as pytree

        flat, self.in_spec = pytree.tree_flatten((args, kwargs))
        return flat

    def __call__(self, flat: list[Any]) -> Any:
        from torch.utils import _pytree as pytree

        args, kwargs = pytree.tree_unflatten(flat, self.in_spec)
        return self.original_fn(*args, **kwargs)
