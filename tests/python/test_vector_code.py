"""Elementwise ops of PyTorch's database over 1,000 elements.

Samples of the database have few, and compilers make other code, with other mistakes, for as many as
fill a vector.
"""

from typing import Any

import pytest
import torch
from torch.testing import make_tensor
from torch.testing._internal.common_methods_invocations import binary_ufuncs, unary_ufuncs

ELEMENTS = 1000
# By the name's last word: why an op is not compared.
LEFT_OUT = {
    "rrelu": "draws random numbers",
    "chalf": "XLA has no complex numbers of two halves",
    "jiterator_unary": "compiles for CUDA only",
    "jiterator_binary": "compiles for CUDA only",
    "jiterator_binary_return_by_ref": "compiles for CUDA only",
}
UNARY, BINARY = (  # without PyTorch's references, which are made of the same ops
    [o for o in ops if o.name.split(".")[-1] not in LEFT_OUT and not o.name.startswith("_refs.")]
    for ops in (unary_ufuncs, binary_ufuncs)
)
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-8}


def vector(dtype: torch.dtype, low: float | None, high: float | None) -> torch.Tensor:
    low, high = -3 if low is None else low, 3 if high is None else high
    return make_tensor((ELEMENTS,), dtype=dtype, device="cpu", low=low, high=high)


def results(op: Any, device: str, *args: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    kwargs = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
    got = op(*(a.to(device) for a in args), **kwargs)
    return got.cpu() if isinstance(got, torch.Tensor) else torch.stack([t.cpu() for t in got])


def check_against_eager(op: Any, device: str, *args: torch.Tensor, **kwargs: Any) -> None:
    ours, want = (results(op, d, *args, **kwargs) for d in (device, "cpu"))
    tol = TOLERANCE[args[0].dtype]
    torch.testing.assert_close(ours, want, rtol=tol, atol=tol, equal_nan=True)


def cases(ops: list[Any]) -> list[Any]:
    """Each op with each dtype that eager has a kernel for."""
    return [
        pytest.param(op, dtype, id=f"{op.full_name}-{dtype}")
        for op in ops
        for dtype in TOLERANCE
        if dtype in op.supported_dtypes("cpu")
    ]


@pytest.mark.parametrize(("op", "dtype"), cases(UNARY))
def test_of_one_operand(op, dtype, device):
    torch.manual_seed(0)
    x = vector(dtype, *op.domain)
    kwargs, _ = op.sample_kwargs("cpu", dtype, x)
    check_against_eager(op, device, x, **kwargs)


@pytest.mark.parametrize(("op", "dtype"), cases(BINARY))
def test_of_two_operands(op, dtype, device):
    torch.manual_seed(0)
    x, y = (
        vector(dtype, kwargs.get("low"), kwargs.get("high"))
        for kwargs in (op.lhs_make_tensor_kwargs, op.rhs_make_tensor_kwargs)
    )
    check_against_eager(op, device, x, y)


def test_a_sum_of_arctangents(device):
    """Fused with what comes behind it, as the compiler's mistake of atan was."""
    x = torch.linspace(-3, 3, ELEMENTS)
    ours = (torch.atan(x.to(device)) * 2 + 1).sum().item()
    assert ours == pytest.approx((torch.atan(x) * 2 + 1).sum().item(), rel=1e-5)
