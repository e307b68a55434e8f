"""Mixtures of experts: grouped matrix products and what libraries build around them."""

import pytest
import torch
from eager import check, check_error, moved

import torch_pjrt

OFFSETS = {
    "plain": [2, 5, 8],
    "empty_group": [3, 3, 8],
    "empty_first": [0, 4, 8],
    "all_in_one": [0, 8, 8],
}


def offsets(name: str) -> torch.Tensor:
    return torch.tensor(OFFSETS[name], dtype=torch.int32)


def grid(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    n = torch.Size(shape).numel()
    return ((torch.arange(n) * 7 % 23 - 11) / 8).view(shape).to(dtype)


@pytest.mark.parametrize("groups", OFFSETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rows_meet_their_groups_matrix(groups, dtype):
    x, w = grid(8, 16, dtype=dtype), grid(3, 16, 8, dtype=dtype)
    check(lambda x, w, o: torch._grouped_mm(x, w, offs=o), x, w, offsets(groups))


@pytest.mark.parametrize("groups", OFFSETS)
def test_columns_meet_their_groups_matrix(groups):
    check(
        lambda x, w, o: torch._grouped_mm(x, w, offs=o),
        grid(3, 8, 16),
        grid(16, 8),
        offsets(groups),
    )


@pytest.mark.parametrize("groups", OFFSETS)
def test_groups_share_out_the_contracted_dim(groups):
    check(lambda x, w, o: torch._grouped_mm(x, w, offs=o), grid(4, 8), grid(8, 16), offsets(groups))


def test_without_groups_it_is_a_batched_product():
    check(lambda x, w: torch._grouped_mm(x, w), grid(3, 4, 8), grid(3, 8, 16))


def test_gradients_are_eagers():
    def program(x, w, o):
        (torch.nn.functional.grouped_mm(x, w, offs=o) ** 2).sum().backward()
        return x.grad, w.grad

    args = grid(8, 16).requires_grad_(), grid(3, 16, 8).requires_grad_(), offsets("plain")
    check(program, *args)


def test_a_nan_stays_in_its_group():
    x, w = grid(8, 16), grid(3, 16, 8)
    x[0], w[2] = float("nan"), float("inf")
    check(lambda x, w, o: torch._grouped_mm(x, w, offs=o).isfinite(), x, w, offsets("plain"))


def test_offsets_are_data_and_recompile_nothing(compiles):
    x, w = moved((grid(8, 12), grid(3, 12, 8)))
    with compiles() as seen:
        for name in OFFSETS:
            made = torch._grouped_mm(x, w, offs=moved(offsets(name)))
            torch_pjrt.sync()
    assert made.shape == (8, 8)
    assert (seen.count, seen.cuts, seen.fallbacks) == (1, 0, ())


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w, o: torch._grouped_mm(x, w),
        lambda x, w, o: torch._grouped_mm(x, w, offs=o.long()),
        lambda x, w, o: torch._grouped_mm(x, w, offs=o[:2]),
        lambda x, w, o: torch._grouped_mm(x.double(), w.double(), offs=o),
        lambda x, w, o: torch._grouped_mm(x, w[:, :8].contiguous(), offs=o),
        lambda x, w, o: torch._grouped_mm(x[0], w, offs=o),
        lambda x, w, o: torch._grouped_mm(x, w, offs=o, out_dtype=torch.float64),
    ],
)
def test_mistakes_have_eagers_words(call):
    check_error(call, grid(8, 16), grid(3, 16, 8), offsets("plain"))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_histc_counts_integers_as_cuda_does(device, dtype):
    x = torch.tensor([0, 3, 1, 3, 2, 3, 0, 7], dtype=dtype, device=device)
    got = torch.histc(x, bins=4, min=0, max=3)
    assert got.dtype == dtype
    assert got.tolist() == [2, 1, 1, 3]
