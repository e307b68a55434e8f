"""A number that eager refuses is refused also once others of the same op were accepted: run-time
numbers are no part of a type, which is what a call is checked with at its first time only."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

NAN, INF = float("nan"), float("inf")
X = torch.linspace(-1, 1, 24).view(4, 6)
o = torch.ops.aten

REFUSED: dict[str, tuple[Callable[[torch.Tensor, float], torch.Tensor], list[float]]] = {
    "softshrink": (o.softshrink, [-1.0, NAN, INF]),
    "renorm": (lambda x, v: x.renorm(2.0, 0, v), [-1.0, NAN]),
    "elu_backward": (lambda x, v: o.elu_backward(x, v, 1.0, 1.0, True, x), [-1.0]),
    "leaky_relu_backward": (lambda x, v: o.leaky_relu_backward(x, x, v, True), [-1.0]),
    "histc": (lambda x, v: torch.histc(x, 4, 0, v), [-1.0, NAN, INF]),
    "dropout": (lambda x, v: torch.native_dropout(x, v, True)[0], [-1.0, 2.0, NAN]),
    "rrelu": (lambda x, v: F.rrelu(x, v, 1.0, training=True), [2.0, NAN]),
    "uniform_": (lambda x, v: torch.empty_like(x).uniform_(v, 1.0), [2.0, NAN, -INF, 1e300]),
    "normal": (lambda x, v: torch.normal(x, v), [-1.0, NAN]),
    "normal_": (lambda x, v: torch.empty_like(x).normal_(0, v), [-1.0, NAN]),
    "cauchy_": (lambda x, v: torch.empty_like(x).cauchy_(0, v), [0.0, -1.0, NAN]),
    "log_normal_": (lambda x, v: torch.empty_like(x).log_normal_(0, v), [0.0, -1.0, NAN]),
    "exponential_": (lambda x, v: torch.empty_like(x).exponential_(v), [0.0, -1.0, NAN]),
    "geometric_": (lambda x, v: torch.empty_like(x).geometric_(v), [0.0, 1.0, NAN]),
    "bernoulli_": (lambda x, v: torch.empty_like(x).bernoulli_(v), [-1.0, 2.0, NAN]),
    "cdist": (lambda x, v: torch.cdist(x, x, v), [-1.0, NAN]),
}


def outcome(call: Callable[[], torch.Tensor]) -> tuple[type | None, str]:
    """The type and first line of what it raises."""
    try:
        call()
    except Exception as e:
        return type(e), str(e).splitlines()[0]
    return None, ""


@pytest.mark.parametrize("name", REFUSED)
def test_number_that_eager_refuses_is_refused_after_others_were_accepted(name: str) -> None:
    op, refused = REFUSED[name]
    x = X.to("xla")
    for accepted in (0.25, 0.5, 0.75):
        op(x, accepted)
    for value in refused:
        want = outcome(lambda v=value: op(X, v))
        assert want[0] is not None
        assert outcome(lambda v=value: op(x, v)) == want


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("size", [0, -1])
def test_fractional_pooling_of_windows_of_no_values_is_eagers(dims: int, size: int) -> None:
    pool = getattr(o, f"fractional_max_pool{dims}d")
    x, samples = torch.randn(1, 3, *[9] * dims), torch.rand(1, 3, dims)
    kernel = [3] * (dims - 1) + [size]

    def both(device: str) -> torch.Tensor:
        values, at = pool(x.to(device), kernel, [2] * dims, samples.to(device))
        return torch.stack([values, at.to(values.dtype)]).cpu()

    want = outcome(lambda: both("cpu"))  # refused by PyTorch 2.15
    assert outcome(lambda: both("xla")) == want
    assert want[0] is not None or torch.equal(both("xla"), both("cpu"))


@pytest.mark.parametrize("eps", [0.75, 1.0, 1.5])
def test_logit_with_bounds_that_cross_is_eagers(eps: float) -> None:
    x = torch.linspace(-0.5, 1.5, 101)
    torch.testing.assert_close(x.to("xla").logit(eps).cpu(), x.logit(eps), equal_nan=True)


@pytest.mark.parametrize("name", ["cauchy_", "log_normal_", "exponential_"])
def test_an_infinite_parameter_that_eager_takes_is_taken(name: str) -> None:
    REFUSED[name][0](X, INF)
    REFUSED[name][0](X.to("xla"), INF).cpu()
