"""0-d tensors of the CPU are operands of device ops, as they are of CUDA's: clamp and its kind."""

import pytest
import torch
from eager import assert_equal

X = torch.tensor([-2.0, -0.2, 0.4, 3.0])
LOW, HIGH = torch.tensor(-0.5), torch.tensor(0.5)

CALLS = {
    "clamp": lambda x: x.clamp(LOW, HIGH),
    "torch.clamp": lambda x: torch.clamp(x, LOW, HIGH),
    "clamp of one": lambda x: x.clamp(min=LOW),
    "clamp of the other": lambda x: x.clamp(max=HIGH),
    "clamp in place": lambda x: x.clone().clamp_(LOW, HIGH),
    "clamp into out": lambda x: torch.clamp(x, LOW, HIGH, out=torch.empty_like(x)),
    "clip": lambda x: x.clip(LOW, HIGH),
    "clip in place": lambda x: x.clone().clip_(LOW, HIGH),
    "clamp_min": lambda x: x.clamp_min(LOW),
    "clamp_max": lambda x: x.clamp_max(HIGH),
    "clamp with a device tensor": lambda x: x.clamp(LOW, x.abs()),
    "clamp of a wider one": lambda x: x.clamp(LOW.double(), HIGH.double()),
    "clamp of whole numbers": lambda x: x.int().clamp(torch.tensor(0), torch.tensor(2)),
    "clamp that promotes": lambda x: x.int().clamp(LOW, HIGH),
    "addcmul": lambda x: torch.addcmul(x, LOW, HIGH),
    "addcdiv": lambda x: torch.addcdiv(x, LOW, HIGH),
    "where": lambda x: torch.where(x > 0, LOW, HIGH),
    "where of one": lambda x: torch.where(x > 0, x, HIGH),
    "lerp": lambda x: torch.lerp(x, HIGH, LOW),
    "fmax": lambda x: torch.fmax(x, HIGH),
    "maximum of whole numbers": lambda x: torch.maximum(x.int(), torch.tensor(1)),
    "hypot": lambda x: torch.hypot(x, HIGH.double()),
    "masked_fill": lambda x: x.masked_fill(x > 0, HIGH),
    "div": lambda x: torch.div(x, HIGH, rounding_mode="floor"),
    "sub": lambda x: HIGH - x,
}


@pytest.mark.parametrize("name", CALLS)
def test_value_and_dtype_are_eagers(name, compiles):
    eager = CALLS[name](X)
    x = X.to("xla") * 1
    with compiles() as seen:
        ours = CALLS[name](x)
    assert (seen.cuts, seen.fallbacks) == (0, ())
    assert ours.device.type == "xla"
    assert_equal(ours, eager)


def test_gradient_reaches_the_tensor():
    x, y = X.to("xla").requires_grad_(), X.clone().requires_grad_()
    x.clamp(LOW, HIGH).sum().backward()
    y.clamp(LOW, HIGH).sum().backward()
    assert_equal(x.grad, y.grad)


def test_another_bound_is_the_same_program(compiles):
    x = X.to("xla")
    with compiles() as seen:
        for bound in (0.1, 0.2, 0.3):
            x.clamp(torch.tensor(-bound), torch.tensor(bound)).cpu()
    assert seen.count == 1


def test_larger_tensors_of_the_cpu_are_still_refused():
    with pytest.raises(RuntimeError, match="same device"):
        X.to("xla").clamp(X, X + 1)
