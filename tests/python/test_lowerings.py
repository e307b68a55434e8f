"""The core's lowerings against eager, op by op, without torch integration (core/opcheck.py)."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))
import opcheck

pytestmark = pytest.mark.skipif(opcheck.tool_path() is None, reason="op_tool is not built")

INF, NAN = float("inf"), float("nan")
SPECIAL = [INF, -INF, NAN, 0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 0.5, -7.5]
WILD = torch.tensor([*SPECIAL, 0.3, 2.5, 1.5, 8.0, 100.0, 1e-3, 20.0, -20.0])
TAME = torch.linspace(-3, 3, 24).reshape(4, 6)
INTS = torch.tensor([[-7, -1, 0, 3], [1, 2, 120, 5], [9, -9, 4, -4]])
BYTES = torch.tensor([0, 1, 200], dtype=torch.uint8)
BOOLS = torch.tensor([True, False, True])
COMPLEX = torch.complex(TAME, TAME.flip(0) * 0.7)
EMPTY = torch.empty(0, 3)
SCALAR = torch.tensor(0.7)
X = torch.tensor(SPECIAL).repeat_interleave(len(SPECIAL))
Y = torch.tensor(SPECIAL).repeat(len(SPECIAL))


def compare(name: str, *args: Any, **kwargs: Any) -> bool:
    """Checks the call where eager takes it; False where eager raises."""
    try:
        opcheck.eager(name, args, kwargs)
    except opcheck.ToolError:
        raise
    except (RuntimeError, IndexError, TypeError):
        return False
    opcheck.check(name, *args, **kwargs)
    return True


UNARY = [
    "abs",
    "reciprocal",
    "neg",
    "bitwise_not",
    "logical_not",
    "sign",
    "sgn",
    "signbit",
    "isnan",
    "isposinf",
    "isneginf",
    "isinf",
    "_conj_physical",
    "angle",
    "nan_to_num",
    "floor",
    "ceil",
    "round",
    "trunc",
    "frac",
    "sqrt",
    "rsqrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "logit",
    "sigmoid",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sinc",
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "digamma",
    "mish",
    "special_entr",
    "special_i1e",
    "frexp.Tensor",
    "relu",
    "silu",
    "hardswish",
    "hardsigmoid",
    "log_sigmoid_forward",
]


@pytest.mark.parametrize("name", UNARY)
def test_unary_op_agrees_with_eager(name: str) -> None:
    inputs = [
        WILD,
        WILD.double(),
        WILD.bfloat16(),
        TAME.half(),
        INTS,
        BYTES,
        BOOLS,
        COMPLEX,
        EMPTY,
        SCALAR,
    ]
    assert sum(compare(f"aten::{name}", x) for x in inputs) > 1


BINARY = [
    "add.Tensor",
    "sub.Tensor",
    "rsub.Tensor",
    "mul.Tensor",
    "div.Tensor",
    "floor_divide",
    "remainder.Tensor",
    "fmod.Tensor",
    "pow.Tensor_Tensor",
    "bitwise_and.Tensor",
    "bitwise_or.Tensor",
    "bitwise_xor.Tensor",
    "bitwise_left_shift.Tensor",
    "bitwise_right_shift.Tensor",
    "logical_and",
    "logical_or",
    "logical_xor",
    "gcd",
    "lcm",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "hypot",
    "copysign.Tensor",
    "nextafter",
    "heaviside",
    "xlogy.Tensor",
    "special_xlog1py",
    "logaddexp",
    "logaddexp2",
    "eq.Tensor",
    "ne.Tensor",
    "lt.Tensor",
    "le.Tensor",
    "gt.Tensor",
    "ge.Tensor",
]


@pytest.mark.parametrize("name", BINARY)
def test_binary_op_agrees_with_eager(name: str) -> None:
    some = torch.tensor([3, -2, 7, 1])
    pairs: list[tuple[Any, Any]] = [
        (X, Y),
        (X.bfloat16(), Y.bfloat16()),
        (TAME, TAME[0]),
        (TAME, TAME.half()),
        (TAME, 2),
        (TAME, 2.5),
        (INTS, some),
        (INTS.to(torch.int8), some[:1]),
        (INTS, 3),
        (INTS, 0.1),
        (BYTES, BYTES + 3),
        (BOOLS, BOOLS[:1]),
        (INTS[:, :3], BOOLS),
        (COMPLEX, COMPLEX + 1),
        (COMPLEX, TAME),
        (EMPTY, TAME[0, :3]),
        (SCALAR, INTS),
        (TAME.half(), torch.tensor(2.0, dtype=torch.float64)),
    ]
    assert sum(compare(f"aten::{name}", x, y) for x, y in pairs) > 2


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_rounded_division_is_exactly_eagers(mode: str | None, dtype: torch.dtype) -> None:
    x, y = (torch.arange(-300, 300) * 0.37), torch.arange(1, 601) * 0.11
    if dtype is torch.int64:
        x, y = x * 10, y * 10 + 1
    compare("aten::div.Tensor_mode", x.to(dtype), y.to(dtype), rounding_mode=mode)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5, 4])
def test_known_exponents_agree_with_eager(exponent: float) -> None:
    for x in (WILD, TAME.bfloat16(), INTS, BYTES, COMPLEX):
        compare("aten::pow.Tensor_Scalar", x, exponent)
        compare("aten::pow.Scalar", exponent, x)


def test_clamps_pass_nan_and_take_missing_bounds() -> None:
    for x in (WILD, WILD.bfloat16(), INTS):
        for low, high in ((-1, 1), (None, 0.5), (0, None), (1.5, -1.5), (-1, NAN)):
            compare("aten::clamp", x, low, high)
    opcheck.check("aten::clamp.Tensor", TAME, TAME[0], None)


@pytest.mark.parametrize("value", [1, 2, 0.5, 1.0])
def test_scaled_products_agree_with_eager(value: float) -> None:
    for x in (TAME, TAME.bfloat16(), COMPLEX):
        opcheck.check("aten::addcmul", x, x, x[0], value=value)
        opcheck.check("aten::addcdiv", x, x, x[0] + 4, value=value)
        opcheck.check("aten::lerp.Scalar", x, x * 2, value)


def test_where_and_masked_fill_promote_as_eager() -> None:
    mask = TAME > 0
    for other in (TAME.double(), torch.tensor(2.5), torch.tensor(3), TAME.bfloat16()):
        opcheck.check("aten::where.self", mask, TAME, other)
    opcheck.check("aten::masked_fill.Scalar", TAME, mask[0], -INF)
    opcheck.check_error("aten::where.self", torch.ones(2), TAME, TAME)
    opcheck.check_error("aten::masked_fill.Scalar", TAME, torch.ones(6), 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_backward_formulas_agree_with_eager(dtype: torch.dtype) -> None:
    x = torch.cat([TAME.reshape(-1), torch.tensor([-3.0, 3.0, 0.0, 1.0, -1.0, 6.0])]).to(dtype)
    g = torch.linspace(-1, 2, x.numel()).to(dtype)
    for name in ("silu", "hardsigmoid", "hardswish", "tanh", "sigmoid"):
        opcheck.check(f"aten::{name}_backward", g, x)
    for approximate in ("none", "tanh"):
        opcheck.check("aten::gelu_backward", g, x, approximate=approximate)
    opcheck.check("aten::softplus_backward", g, x, 2.5, 3)
    opcheck.check("aten::threshold_backward", g, x, 0)
    opcheck.check("aten::leaky_relu_backward", g, x, 0.01, False)
    opcheck.check("aten::hardtanh_backward", g, x, -1, 1)
    opcheck.check("aten::elu_backward", g, 0.7, 1, 1, False, x)
    opcheck.check("aten::log_sigmoid_backward", g, x, torch.exp(-x.abs()))


REDUCTIONS = [
    "sum.dim_IntList",
    "mean.dim",
    "nansum",
    "all.dims",
    "any.dims",
    "amax",
    "amin",
    "logsumexp",
    "count_nonzero.dim_IntList",
]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_agrees_with_eager(name: str) -> None:
    for x in (TAME, WILD.reshape(1, -1), TAME.bfloat16(), INTS, BOOLS, COMPLEX, EMPTY, SCALAR):
        for dim in ([0], [-1], []):
            compare(f"aten::{name}", x, dim)


@pytest.mark.parametrize(
    "name", ["max.dim", "min.dim", "argmax", "argmin", "median.dim", "prod.dim_int"]
)
def test_first_of_equals_and_nan_win_as_in_eager(name: str) -> None:
    for x in (torch.tensor([[3.0, 3, 1], [NAN, 3, NAN], [-INF] * 3]), TAME, BOOLS, BYTES, SCALAR):
        for keepdim in (False, True):
            compare(f"aten::{name}", x, -1, keepdim)


@pytest.mark.parametrize("correction", [None, 0, 2, 1.5, 50])
def test_moments_agree_with_eager(correction: float | None) -> None:
    for name in ("var", "std", "var_mean", "std_mean"):
        for x in (TAME, TAME.bfloat16(), COMPLEX):
            opcheck.check(f"aten::{name}.correction", x, [1], correction=correction)


@pytest.mark.parametrize("order", [2, 1, 0, INF, -INF, 3, 0.5])
def test_norms_agree_with_eager(order: float) -> None:
    for x in (TAME, TAME.bfloat16(), COMPLEX):
        opcheck.check("aten::linalg_vector_norm", x, order, [1], True)
        opcheck.check("aten::norm.ScalarOpt_dim", x, order, [0])


def test_softmax_and_its_gradient_agree_with_eager() -> None:
    for x in (
        TAME,
        TAME.half(),
        torch.tensor([[-INF, -INF], [0.0, -INF], [INF, 1.0]]),
        EMPTY,
        SCALAR,
    ):
        for name in ("_softmax", "_log_softmax"):
            opcheck.check(f"aten::{name}", x, -1, False)
            y = opcheck.overload(f"aten::{name}")(x, -1, False)
            opcheck.check(f"aten::{name}_backward_data", torch.ones_like(x), y, -1, x.dtype)


@pytest.mark.parametrize("beta", [1, 0, 0.5])
def test_matrix_products_agree_with_eager(beta: float) -> None:
    for dtype in (torch.float32, torch.float64, torch.int64, torch.complex64):
        a, b = TAME.to(dtype), TAME.t().to(dtype)
        compare("aten::mm", a, b)
        compare("aten::addmm", b[0, :4], a, b, beta=beta, alpha=2)
        compare("aten::baddbmm", b[0, :4], a[None], b[None], beta=beta)
        compare("aten::addmv", a[:, 0], a, a[0], beta=beta)
    opcheck.check("aten::addmm", torch.full((4,), NAN), TAME, TAME.t(), beta=0)
    opcheck.check_error("aten::mm", TAME, TAME.t().double())


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses_agree_with_eager(reduction: int) -> None:
    x, y = TAME, TAME.flip(0) * 0.5
    g = torch.ones_like(x) if reduction == 0 else torch.tensor(0.5)
    for name, extra in (("mse_loss", ()), ("smooth_l1_loss", (0.3,)), ("huber_loss", (0.3,))):
        opcheck.check(f"aten::{name}", x, y, reduction, *extra)
        opcheck.check(f"aten::{name}_backward", g, x, y, reduction, *extra)
    p, t = torch.sigmoid(x), torch.sigmoid(y)
    opcheck.check("aten::binary_cross_entropy", p, t, p, reduction)
    opcheck.check("aten::binary_cross_entropy_backward", g, p, t, p, reduction)
    target, weight = torch.tensor([0, 5, -100, 2]), torch.linspace(0.5, 2, 6)
    for w in (None, weight):
        log_p = torch.log_softmax(x, 1)
        opcheck.check("aten::nll_loss_forward", log_p, target, w, reduction, -100)
        loss, total = torch.ops.aten.nll_loss_forward(log_p, target, w, reduction, -100)
        opcheck.check(
            "aten::nll_loss_backward",
            torch.ones_like(loss),
            log_p,
            target,
            w,
            reduction,
            -100,
            total,
        )


@pytest.mark.parametrize("name", ["gelu", "mish", "frac", "logit", "_softmax", "gcd"])
def test_dtypes_that_eager_lacks_raise_its_words(name: str) -> None:
    args = {"_softmax": (-1, False), "gcd": (TAME,)}.get(name, ())
    x = {"gcd": TAME, "logit": COMPLEX}.get(name, INTS)
    opcheck.check_error(f"aten::{name}", x, *args)
