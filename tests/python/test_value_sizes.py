"""Ops whose size follows from values read one number; told the size, they read nothing."""

import pytest
import torch
from eager import check, check_error

X = torch.tensor([1, 2, 2, 5])
W = torch.tensor([0.5, 1.0, 2.0, 4.0])

COUNTS = {
    "plain": lambda x: torch.bincount(x),
    "minlength": lambda x: torch.bincount(x, minlength=8),
    "short minlength": lambda x: torch.bincount(x, minlength=3),
    "method": lambda x: x.bincount(minlength=8),
}


@pytest.mark.parametrize("name", COUNTS)
def test_bincount_is_one_read_and_eagers(name, compiles):
    x = (X.to("xla") * 2) // 2
    with compiles() as seen:
        ours = COUNTS[name](x)
    assert (seen.cuts, seen.fallbacks) == (1, ())
    assert torch.equal(ours.cpu(), COUNTS[name](X))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_bincount_of_whole_numbers(dtype):
    check(lambda x: torch.bincount(x, minlength=4), X.to(dtype))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.float64, torch.int64, torch.bool]
)
def test_weights_add_up_in_eagers_dtype(dtype):
    check(lambda x, w: torch.bincount(x, weights=w, minlength=2), X, W.to(dtype))


def test_bincount_of_nothing():
    none = torch.zeros(0, dtype=torch.int64)
    check(lambda x: torch.bincount(x), none)
    check(lambda x: torch.bincount(x, minlength=3), none)
    check(lambda x, w: torch.bincount(x, weights=w, minlength=3), none, torch.zeros(0))


def test_bincounts_errors_are_eagers():
    check_error(torch.bincount, torch.tensor([1, -1]))
    check_error(torch.bincount, torch.tensor([[1]]))
    check_error(torch.bincount, torch.tensor([1.0]))
    check_error(torch.bincount, torch.tensor([True]))
    check_error(lambda x: torch.bincount(x, minlength=-1), X)
    check_error(lambda x, w: torch.bincount(x, weights=w), X, W[:2])


def test_repeat_interleave_of_a_known_size_reads_nothing(compiles):
    x = X.to("xla") * 1
    with compiles() as seen:
        a = torch.repeat_interleave(x, x, output_size=10)
        b = torch.repeat_interleave(x[:, None], x, dim=0, output_size=10)
        c = torch.repeat_interleave(x, output_size=10)
    assert (seen.cuts, seen.fallbacks) == (0, ())
    assert torch.equal(a.cpu(), torch.repeat_interleave(X, X))
    assert torch.equal(b.cpu(), torch.repeat_interleave(X[:, None], X, dim=0))
    assert torch.equal(c.cpu(), torch.repeat_interleave(X))


def test_repeat_interleave_of_an_unknown_size_is_one_read(compiles):
    x = X.to("xla") * 1
    with compiles() as seen:
        ours = torch.repeat_interleave(x, x)
    assert (seen.cuts, seen.fallbacks) == (1, ())
    assert torch.equal(ours.cpu(), torch.repeat_interleave(X, X))


def test_repeat_interleave_is_eagers():
    check(torch.repeat_interleave, X.int())
    check(torch.repeat_interleave, torch.tensor([0, 3, 0]))
    check(torch.repeat_interleave, torch.zeros(0, dtype=torch.int64))
    check(lambda w, x: torch.repeat_interleave(w, x, dim=1), torch.randn(2, 4), X)
    check_error(torch.repeat_interleave, torch.tensor([1, -1]))
    check_error(torch.repeat_interleave, torch.tensor([[1]]))
    check_error(torch.repeat_interleave, torch.tensor([1.0]))
    check_error(torch.repeat_interleave, torch.tensor([1], dtype=torch.int16))


def test_repeat_interleave_has_a_gradient():
    w = torch.randn(4)
    ours = w.to("xla").requires_grad_()
    torch.repeat_interleave(ours, X.to("xla"), output_size=10).square().sum().backward()
    eager = w.clone().requires_grad_()
    torch.repeat_interleave(eager, X).square().sum().backward()
    torch.testing.assert_close(ours.grad.cpu(), eager.grad)
