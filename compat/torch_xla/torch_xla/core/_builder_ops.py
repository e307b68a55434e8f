"""Methods of xb.Op that are one op of PyTorch each."""

import functools
from collections.abc import Callable
from typing import Any

import torch


def _value(x: Any) -> Any:
    return getattr(x, "value", x)


def _op(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` of tensors, as a method of Ops."""

    @functools.wraps(fn)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = fn(self.value, *map(_value, args), **{k: _value(v) for k, v in kwargs.items()})
        return type(self)(out)

    return method


def _swapped(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: fn(b, a)


def _broadcast_in_dim(x: torch.Tensor, sizes: Any, dimensions: Any) -> torch.Tensor:
    view = [1] * len(sizes)
    for d, size in zip(dimensions, x.shape, strict=True):
        view[d] = size
    return x.reshape(view).expand(tuple(sizes))


def _slice(x: torch.Tensor, start: Any, limit: Any, strides: Any) -> torch.Tensor:
    return x[tuple(slice(*b) for b in zip(start, limit, strides, strict=True))]


def _slice_in_dim(x: torch.Tensor, start: int, limit: int, stride: int, dim: int) -> torch.Tensor:
    return x[(slice(None),) * dim + (slice(start, limit, stride),)]


def _solve(
    a: torch.Tensor, b: torch.Tensor, left: bool, lower: bool, unit: bool, flip: bool
) -> Any:
    upper = not lower
    if flip:
        a, upper = a.mT, not upper
    return torch.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit)


def _pad(x: torch.Tensor, value: Any, config: Any) -> torch.Tensor:
    pads = [p for low, high, _ in reversed(config) for p in (low, high)]
    return torch.nn.functional.pad(x, pads, value=float(value))


_BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
    "rem": torch.fmod, "eq": torch.eq, "ne": torch.ne, "gt": torch.gt, "ge": torch.ge,
    "lt": torch.lt, "le": torch.le, "max": torch.maximum, "min": torch.minimum,
    "atan2": torch.atan2, "shl": torch.bitwise_left_shift, "dot": torch.matmul,
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
}  # fmt: skip
_DUNDER = (
    "add", "sub", "mul", "pow", "eq", "ne", "gt", "ge", "lt", "le", "and", "or", "xor",
)  # fmt: skip
_UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "erfc",
    "erfinv", "exp", "expm1", "floor", "imag", "lgamma", "log", "log1p", "neg", "real",
    "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
MORE: dict[str, Any] = {n: _op(getattr(torch, n)) for n in _UNARY}
MORE |= {n: _op(f) for n, f in _BINARY.items()}
MORE |= {f"__{n}__": _op(_BINARY[n]) for n in _DUNDER}
MORE |= {
    "__truediv__": _op(torch.div), "__mod__": _op(torch.fmod), "__neg__": _op(torch.neg),
    "__radd__": _op(_swapped(torch.add)), "__rsub__": _op(_swapped(torch.sub)),
    "__rmul__": _op(_swapped(torch.mul)), "__rtruediv__": _op(_swapped(torch.div)),
    "__matmul__": _op(torch.matmul), "__invert__": _op(torch.bitwise_not),
    "not": _op(torch.bitwise_not), "clamp": _op(lambda x, low, high: x.clamp(low, high)),
    "__hash__": None,
    "broadcast": _op(lambda x, sizes: x.expand(*sizes, *x.shape)),
    "broadcast_in_dim": _op(_broadcast_in_dim), "reshape": _op(torch.reshape),
    "transpose": _op(torch.permute), "permute": _op(torch.permute), "slice": _op(_slice),
    "slice_in_dim": _op(_slice_in_dim), "rev": _op(torch.flip), "pad": _op(_pad),
    "select": _op(torch.where),
    "triangualr_solve": _op(_solve), "triangular_solve": _op(_solve),
}  # fmt: skip


def _dynamic_slice(x: torch.Tensor, at: Any, sizes: Any) -> torch.Tensor:
    for d, (start, size) in enumerate(zip(at, sizes, strict=True)):
        index = _value(start).clamp(0, x.shape[d] - size) + torch.arange(size, device=x.device)
        x = x.index_select(d, index)
    return x


MORE["dynamic_slice"] = _op(_dynamic_slice)
