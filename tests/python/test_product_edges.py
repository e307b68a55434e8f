"""addmm and its family where alpha or beta is 0 and the factors are not finite."""

import pytest
import torch
from eager import check

INF, NAN = float("inf"), float("nan")
A = torch.tensor([[INF, 1.0], [NAN, 2.0]])
B = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
S = torch.tensor([[INF, NAN], [1.0, 0.0]])
V, W = torch.tensor([INF, 1.0]), torch.tensor([NAN, 0.0])
LARGE = torch.full((8, 8), INF)  # 512 products: eager's batches go to BLAS from 400 on

FAMILY = {
    "addmm": lambda al, be: lambda s, a, b: torch.addmm(s, a, b, alpha=al, beta=be),
    "addmm of transposes": lambda al, be: (
        lambda s, a, b: torch.addmm(s.T, a.T, b.T, alpha=al, beta=be)
    ),
    "addmm in place": lambda al, be: lambda s, a, b: s.addmm_(a, b, alpha=al, beta=be),
    "addmm of a row": lambda al, be: lambda s, a, b: torch.addmm(s[1], a, b, alpha=al, beta=be),
    "addmv": lambda al, be: lambda s, a, b: torch.addmv(s[0], a, b[0], alpha=al, beta=be),
    "addr": lambda al, be: lambda s, a, b: torch.addr(s, a[0], b[0], alpha=al, beta=be),
    "addbmm": lambda al, be: lambda s, a, b: torch.addbmm(s, a[None], b[None], alpha=al, beta=be),
    "baddbmm": lambda al, be: (
        lambda s, a, b: torch.baddbmm(s[None], a[None], b[None], alpha=al, beta=be)
    ),
    "activation": lambda al, be: (
        lambda s, a, b: torch._addmm_activation(s[1], a, b, alpha=al, beta=be)
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("beta", [0, 1, 0.5])
@pytest.mark.parametrize("name", FAMILY)
def test_no_alpha_leaves_beta_times_self(name, beta, dtype):
    for alpha in (0, 0.0, 2):
        check(FAMILY[name](alpha, beta), S.to(dtype), A.to(dtype), B.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_large_batches_go_by_blas(dtype):
    x = LARGE.to(dtype)
    check(lambda s, x: torch.baddbmm(s[None], x[None], x[None], alpha=0), torch.ones_like(x), x)
    check(lambda s, x: torch.addmm(s, x, x, alpha=0, beta=0), torch.ones_like(x), x)
    check(lambda s, x: torch.addmv(s[0], x, x[0], alpha=0), torch.ones_like(x), x)


def test_alpha_that_becomes_zero_is_the_same_program(compiles):
    s, a, b = (t.to("xla") for t in (S, A, B))
    with compiles() as seen:
        for alpha in (3.0, 0.5, 0.0):
            kept = torch.addmm(s, a, b, alpha=alpha)
            kept.cpu()
    assert seen.count == 1
    assert torch.equal(kept.cpu().nan_to_num(7), S.nan_to_num(7))
