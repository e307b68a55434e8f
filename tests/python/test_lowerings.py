"""Lowerings at numbers, dtypes and shapes where implementations differ, against eager; the words
of their type rules (core/opcheck.py, without PyTorch's dispatcher). All ops: test_ops.py.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))
import opcheck
from eager import mapped

import torch_pjrt

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


class Calls:
    """Calls that eager and the device make; `agree` holds all of them against each other at once,
    so that a test compiles one program."""

    def __init__(self) -> None:
        self.made: list[tuple[str, list[torch.Tensor], list[torch.Tensor]]] = []

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> None:
        """A call that eager takes."""
        op = opcheck.overload(name)
        want = [t for t in opcheck.flat(op(*args, **kwargs)) if t is not None]
        given = mapped([args, kwargs], lambda t: t.to("xla"))
        got = [t for t in opcheck.flat(op(*given[0], **given[1])) if t is not None]
        self.made.append((name, got, want))

    def if_taken(self, name: str, *args: Any, **kwargs: Any) -> bool:
        """The call where eager takes it; False where eager raises."""
        try:
            opcheck.overload(name)(*args, **kwargs)
        except (RuntimeError, IndexError, TypeError):
            return False
        self(name, *args, **kwargs)
        return True

    def agree(self) -> None:
        torch_pjrt.sync()
        for name, got, want in self.made:
            for i, (g, w) in enumerate(zip(got, want, strict=True)):
                assert g.device.type == "xla", name
                g, w = g.cpu(), w.resolve_conj().resolve_neg()
                try:
                    torch.testing.assert_close(g, w, equal_nan=True)
                except AssertionError as e:
                    where = opcheck.differences(g, w)
                    raise AssertionError(f"{name} result {i}: {where} {e}") from None


@pytest.fixture
def call() -> Calls:
    return Calls()


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
def test_unary_op_agrees_with_eager(call: Calls, name: str) -> None:
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
    assert sum(call.if_taken(f"aten::{name}", x) for x in inputs) > 1
    call.agree()


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
def test_binary_op_agrees_with_eager(call: Calls, name: str) -> None:
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
    assert sum(call.if_taken(f"aten::{name}", x, y) for x, y in pairs) > 2
    call.agree()


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_rounded_division_is_exactly_eagers(
    call: Calls, mode: str | None, dtype: torch.dtype
) -> None:
    x, y = (torch.arange(-300, 300) * 0.37), torch.arange(1, 601) * 0.11
    if dtype is torch.int64:
        x, y = x * 10, y * 10 + 1
    call.if_taken("aten::div.Tensor_mode", x.to(dtype), y.to(dtype), rounding_mode=mode)
    call.agree()


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5, 4])
def test_known_exponents_agree_with_eager(call: Calls, exponent: float) -> None:
    for x in (WILD, TAME.bfloat16(), INTS, BYTES, COMPLEX):
        call.if_taken("aten::pow.Tensor_Scalar", x, exponent)
        call.if_taken("aten::pow.Scalar", exponent, x)
    call.agree()


def test_clamps_pass_nan_and_take_missing_bounds(call: Calls) -> None:
    for x in (WILD, WILD.bfloat16(), INTS):
        for low, high in ((-1, 1), (None, 0.5), (0, None), (1.5, -1.5), (-1, NAN)):
            call.if_taken("aten::clamp", x, low, high)
    call("aten::clamp.Tensor", TAME, TAME[0], None)
    call.agree()


@pytest.mark.parametrize("value", [1, 2, 0.5, 1.0])
def test_scaled_products_agree_with_eager(call: Calls, value: float) -> None:
    for x in (TAME, TAME.bfloat16(), COMPLEX):
        call("aten::addcmul", x, x, x[0], value=value)
        call("aten::addcdiv", x, x, x[0] + 4, value=value)
        call("aten::lerp.Scalar", x, x * 2, value)
    call.agree()


def test_where_and_masked_fill_promote_as_eager(call: Calls) -> None:
    mask = TAME > 0
    for other in (TAME.double(), torch.tensor(2.5), torch.tensor(3), TAME.bfloat16()):
        call("aten::where.self", mask, TAME, other)
    call("aten::masked_fill.Scalar", TAME, mask[0], -INF)
    opcheck.check_error("aten::where.self", torch.ones(2), TAME, TAME)
    opcheck.check_error("aten::masked_fill.Scalar", TAME, torch.ones(6), 1.0)
    call.agree()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_backward_formulas_agree_with_eager(call: Calls, dtype: torch.dtype) -> None:
    x = torch.cat([TAME.reshape(-1), torch.tensor([-3.0, 3.0, 0.0, 1.0, -1.0, 6.0])]).to(dtype)
    g = torch.linspace(-1, 2, x.numel()).to(dtype)
    for name in ("silu", "hardsigmoid", "hardswish", "tanh", "sigmoid"):
        call(f"aten::{name}_backward", g, x)
    for approximate in ("none", "tanh"):
        call("aten::gelu_backward", g, x, approximate=approximate)
    call("aten::softplus_backward", g, x, 2.5, 3)
    call("aten::threshold_backward", g, x, 0)
    call("aten::leaky_relu_backward", g, x, 0.01, False)
    call("aten::hardtanh_backward", g, x, -1, 1)
    call("aten::elu_backward", g, 0.7, 1, 1, False, x)
    call("aten::log_sigmoid_backward", g, x, torch.exp(-x.abs()))
    call.agree()


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
def test_reduction_agrees_with_eager(call: Calls, name: str) -> None:
    for x in (TAME, WILD.reshape(1, -1), TAME.bfloat16(), INTS, BOOLS, COMPLEX, EMPTY, SCALAR):
        for dim in ([0], [-1], []):
            call.if_taken(f"aten::{name}", x, dim)
    call.agree()


@pytest.mark.parametrize(
    "name", ["max.dim", "min.dim", "argmax", "argmin", "median.dim", "prod.dim_int"]
)
def test_first_of_equals_and_nan_win_as_in_eager(call: Calls, name: str) -> None:
    for x in (torch.tensor([[3.0, 3, 1], [NAN, 3, NAN], [-INF] * 3]), TAME, BOOLS, BYTES, SCALAR):
        for keepdim in (False, True):
            call.if_taken(f"aten::{name}", x, -1, keepdim)
    call.agree()


@pytest.mark.parametrize("correction", [None, 0, 2, 1.5, 50])
def test_moments_agree_with_eager(call: Calls, correction: float | None) -> None:
    for name in ("var", "std", "var_mean", "std_mean"):
        for x in (TAME, TAME.bfloat16(), COMPLEX):
            call(f"aten::{name}.correction", x, [1], correction=correction)
    call.agree()


@pytest.mark.parametrize("order", [2, 1, 0, INF, -INF, 3, 0.5])
def test_norms_agree_with_eager(call: Calls, order: float) -> None:
    for x in (TAME, TAME.bfloat16(), COMPLEX):
        call("aten::linalg_vector_norm", x, order, [1], True)
        call("aten::norm.ScalarOpt_dim", x, order, [0])
    call.agree()


def test_softmax_and_its_gradient_agree_with_eager(call: Calls) -> None:
    for x in (
        TAME,
        TAME.half(),
        torch.tensor([[-INF, -INF], [0.0, -INF], [INF, 1.0]]),
        EMPTY,
        SCALAR,
    ):
        for name in ("_softmax", "_log_softmax"):
            call(f"aten::{name}", x, -1, False)
            y = opcheck.overload(f"aten::{name}")(x, -1, False)
            call(f"aten::{name}_backward_data", torch.ones_like(x), y, -1, x.dtype)
    call.agree()


@pytest.mark.parametrize("beta", [1, 0, 0.5])
def test_matrix_products_agree_with_eager(call: Calls, beta: float) -> None:
    for dtype in (torch.float32, torch.float64, torch.int64, torch.complex64):
        a, b = TAME.to(dtype), TAME.t().to(dtype)
        call.if_taken("aten::mm", a, b)
        call.if_taken("aten::addmm", b[0, :4], a, b, beta=beta, alpha=2)
        call.if_taken("aten::baddbmm", b[0, :4], a[None], b[None], beta=beta)
        call.if_taken("aten::addmv", a[:, 0], a, a[0], beta=beta)
    call("aten::addmm", torch.full((4,), NAN), TAME, TAME.t(), beta=0)
    opcheck.check_error("aten::mm", TAME, TAME.t().double())
    call.agree()


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_losses_agree_with_eager(call: Calls, reduction: int) -> None:
    x, y = TAME, TAME.flip(0) * 0.5
    g = torch.ones_like(x) if reduction == 0 else torch.tensor(0.5)
    for name, extra in (("mse_loss", ()), ("smooth_l1_loss", (0.3,)), ("huber_loss", (0.3,))):
        call(f"aten::{name}", x, y, reduction, *extra)
        call(f"aten::{name}_backward", g, x, y, reduction, *extra)
    p, t = torch.sigmoid(x), torch.sigmoid(y)
    call("aten::binary_cross_entropy", p, t, p, reduction)
    call("aten::binary_cross_entropy_backward", g, p, t, p, reduction)
    target, weight = torch.tensor([0, 5, -100, 2]), torch.linspace(0.5, 2, 6)
    for w in (None, weight):
        log_p = torch.log_softmax(x, 1)
        call("aten::nll_loss_forward", log_p, target, w, reduction, -100)
        loss, total = torch.ops.aten.nll_loss_forward(log_p, target, w, reduction, -100)
        call(
            "aten::nll_loss_backward",
            torch.ones_like(loss),
            log_p,
            target,
            w,
            reduction,
            -100,
            total,
        )
    call.agree()


@pytest.mark.parametrize("name", ["gelu", "mish", "frac", "logit", "_softmax", "gcd"])
def test_dtypes_that_eager_lacks_raise_its_words(name: str) -> None:
    args = {"_softmax": (-1, False), "gcd": (TAME,)}.get(name, ())
    x = {"gcd": TAME, "logit": COMPLEX}.get(name, INTS)
    opcheck.check_error(f"aten::{name}", x, *args)
