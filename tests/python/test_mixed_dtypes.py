"""Operands of different dtypes: what eager promotes is promoted, what it refuses is refused."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.bool, torch.complex64,
]  # fmt: skip
Made = Callable[..., torch.Tensor]

# Each gets make(dtype's place, *shape): place 0 is the first operand, 1 the second.
CALLS: dict[str, Callable[[Made], torch.Tensor]] = {
    "layer_norm weight": lambda m: F.layer_norm(m(0, 2, 3), (3,), m(1, 3), m(0, 3)),
    "layer_norm bias": lambda m: F.layer_norm(m(0, 2, 3), (3,), m(0, 3), m(1, 3)),
    "layer_norm both": lambda m: F.layer_norm(m(0, 2, 3), (3,), m(1, 3), m(1, 3)),
    "group_norm bias": lambda m: F.group_norm(m(0, 2, 4), 2, m(0, 4), m(1, 4)),
    "batch_norm mean": lambda m: F.batch_norm(m(0, 2, 3), m(1, 3), m(0, 3), m(0, 3), m(0, 3)),
    "batch_norm stats": lambda m: F.batch_norm(m(0, 2, 3), m(1, 3), m(1, 3)),
    "batch_norm training": lambda m: F.batch_norm(
        m(0, 2, 3), m(1, 3), m(1, 3), m(0, 3), m(0, 3), training=True
    ),
    "nll_loss": lambda m: F.nll_loss(m(0, 2, 3), torch.zeros_like(m(0, 2)).long(), m(1, 3)),
    "nll_loss2d": lambda m: F.nll_loss(m(0, 2, 3, 1), torch.zeros_like(m(0, 2, 1)).long(), m(1, 3)),
    "binary_cross_entropy": lambda m: F.binary_cross_entropy(m(0, 3), m(1, 3)),
    "binary_cross_entropy weight": lambda m: F.binary_cross_entropy(m(0, 3), m(0, 3), m(1, 3)),
    "huber_loss": lambda m: F.huber_loss(m(0, 3), m(1, 3)),
    "mse_loss": lambda m: F.mse_loss(m(0, 3), m(1, 3)),
    "smooth_l1_loss": lambda m: F.smooth_l1_loss(m(0, 3), m(1, 3)),
    "addbmm": lambda m: torch.addbmm(m(1, 2, 2), m(0, 3, 2, 2), m(0, 3, 2, 2)),
    "addmm": lambda m: torch.addmm(m(1, 2, 2), m(0, 2, 2), m(0, 2, 2)),
    "mm": lambda m: torch.mm(m(0, 2, 2), m(1, 2, 2)),
    "clamp min": lambda m: m(0, 3).clamp(min=m(1, 3)),
    "clamp max": lambda m: m(0, 3).clamp(max=m(1, 3)),
    "clamp both": lambda m: m(0, 3).clamp(m(1, 3), m(0, 3)),
    "clamp False": lambda m: m(0, 3).clamp(max=False),
    "clamp 1": lambda m: m(1, 3).clamp(min=1),
    "clamp_min True": lambda m: m(0, 3).clamp_min(True),
    "maximum": lambda m: torch.maximum(m(0, 3), m(1, 3)),
    "where": lambda m: torch.where(m(0, 3) == 1, m(0, 3), m(1, 3)),
    "pow of True": lambda m: torch.pow(True, m(0, 3)),
    "normal": lambda m: torch.normal(m(0, 3), m(1, 3)),
    "normal 0-d": lambda m: torch.normal(m(0), m(1)),
    "prelu": lambda m: F.prelu(m(0, 3), m(1, 1)),
}


def outcome(call: Callable[[Made], torch.Tensor], first: torch.dtype, second: torch.dtype,
            device: object) -> object:  # fmt: skip
    """The result's dtype and shape, or the error's type."""

    def make(place: int, *shape: int) -> torch.Tensor:
        return torch.ones(shape, dtype=(first, second)[place], device=device)

    try:
        result = call(make)
    except Exception as e:
        # NotImplementedError is a RuntimeError; which of two wrongs is told first is left open.
        return RuntimeError if isinstance(e, RuntimeError) else type(e)
    return result.dtype, result.shape


@pytest.mark.parametrize("name", CALLS)
def test_mixed_dtypes_end_as_in_eager(name, device):
    warnings.simplefilter("ignore")
    for first in DTYPES:
        for second in DTYPES:
            ours, eager = (outcome(CALLS[name], first, second, d) for d in (device, "cpu"))
            assert ours == eager, (first, second)


def test_a_target_of_another_dtype_is_told_in_eagers_words(device):
    x, t = torch.ones(3, device=device) / 2, torch.ones(3, dtype=torch.int64, device=device)
    with pytest.raises(RuntimeError, match=r"^Found dtype Long but expected Float"):
        F.binary_cross_entropy(x, t)
