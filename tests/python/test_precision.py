"""float32 products are exact unless the user asks for less; the setting is part of the program."""

from collections.abc import Callable, Iterator

import eager
import pytest
import torch

import torch_pjrt


@pytest.fixture
def precision() -> Iterator[Callable[[str], None]]:
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


def square(n: int = 4, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, n, dtype=dtype, device="xla")


def text_of(y: torch.Tensor) -> str:
    return str(torch_pjrt.graph.of(y).hlo)


@pytest.mark.parametrize("product", ["mm", "addmm", "bmm", "conv", "conv backward"])
def test_float32_products_ask_for_the_highest_precision(product: str) -> None:
    x = square()
    if product == "mm":
        y = x @ x
    elif product == "addmm":
        y = torch.addmm(x, x, x)
    elif product == "bmm":
        y = x[None] @ x[None]
    else:
        images, kernels = x[None, None], square(3)[None, None].requires_grad_()
        y = torch.nn.functional.conv2d(images, kernels)
        if product == "conv backward":
            (y,) = torch.autograd.grad(y.sum(), kernels)
    assert "precision HIGHEST" in text_of(y.detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int32])
def test_other_dtypes_say_nothing_about_precision(dtype: torch.dtype) -> None:
    x = torch.ones(4, 4, dtype=dtype, device="xla")
    assert "precision_config" not in text_of(x @ x)


@pytest.mark.parametrize(("setting", "word"), [("high", "precision HIGH>"), ("medium", None)])
def test_a_lower_setting_is_honoured(
    precision: Callable[[str], None], setting: str, word: str | None
) -> None:
    x = square()
    precision(setting)
    text = text_of(x @ x)
    assert "HIGHEST" not in text
    assert (word in text) if word else ("precision_config" not in text)


def test_the_setting_counts_where_the_product_is_recorded(
    precision: Callable[[str], None],
) -> None:
    x = square()
    exact = x @ x
    precision("high")
    assert "HIGHEST" in text_of(exact)


def test_each_setting_is_a_program_of_its_own(precision: Callable[[str], None]) -> None:
    def compiled() -> int:
        before = torch_pjrt.metrics.compiles()
        for setting in ("highest", "high", "medium"):
            precision(setting)
            x = torch.ones(5, 5, device="xla") * 3
            torch_pjrt.sync()
            (x @ x).cpu()
        return torch_pjrt.metrics.compiles() - before

    first, second = compiled(), compiled()
    assert (first >= 3, second) == (True, 0)


def test_products_keep_eagers_values(precision: Callable[[str], None]) -> None:
    for setting in ("highest", "high", "medium"):
        precision(setting)
        eager.check(lambda a, b: a @ b, torch.randn(8, 9), torch.randn(9, 7))


def test_a_sum_does_not_stand_still_past_two_to_the_24():
    n = 2**25
    assert torch.ones(n, device="xla").sum().item() == n


def test_long_means_are_as_exact_as_eagers():
    torch.manual_seed(0)
    x = torch.randn(32, 4, 32, 32) + 3
    want = x.double().mean((0, 2, 3))
    ours = x.to("xla").mean((0, 2, 3)).cpu().double()
    eager = x.mean((0, 2, 3)).double()
    assert (ours - want).abs().max() <= (eager - want).abs().max() + 1e-7
