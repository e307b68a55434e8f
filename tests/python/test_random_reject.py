"""Gamma, Dirichlet, Poisson and binomial numbers are drawn on the device, and are right."""

import itertools

import pytest
import torch
from eager import check_error
from scipy import stats

import torch_pjrt

N = 20_000
INF, NAN = float("inf"), float("nan")


def full(value: float, dtype=torch.float32, n: int = N) -> torch.Tensor:
    return torch.full((n,), value, dtype=dtype, device="xla")


DRAWS = {
    "gamma": lambda: torch._standard_gamma(full(2.5)),
    "dirichlet": lambda: torch._sample_dirichlet(full(2.5, n=6).view(2, 3)),
    "poisson": lambda: torch.poisson(full(3.0)),
    "large poisson": lambda: torch.poisson(full(300.0)),
    "binomial": lambda: torch.binomial(full(9.0), full(0.3)),
    "large binomial": lambda: torch.binomial(full(900.0), full(0.3)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_drawn_without_a_cut_and_alike_from_one_seed(name, compiles):
    with compiles() as seen:
        torch.manual_seed(5)
        a = DRAWS[name]()
        b = DRAWS[name]()
        torch.manual_seed(5)
        c = DRAWS[name]()
    assert (seen.cuts, seen.fallbacks) == (0, ())
    assert torch.equal(a.cpu(), c.cpu())
    assert not torch.equal(a.cpu(), b.cpu())


def test_another_draw_is_the_same_program(compiles):
    with compiles() as seen:
        for rate in (1.0, 2.0, 50.0):
            kept = torch.poisson(full(rate)) + torch._standard_gamma(full(rate))
            torch_pjrt.sync()
    assert seen.count == 1
    del kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 3.0, 200.0])
def test_gamma_passes_kolmogorov_and_smirnov(alpha, dtype):
    torch.manual_seed(0)
    x = torch._standard_gamma(full(alpha, dtype)).cpu().double().numpy()
    assert (x > 0).all()
    assert stats.kstest(x, stats.gamma(alpha).cdf).pvalue > 1e-3


@pytest.mark.parametrize("alphas", [(1.0, 2.0, 3.0), (0.05, 0.05, 0.1), (100.0, 1.0, 0.2)])
def test_dirichlet_shares_are_distributed_as_eagers(alphas):
    """Eager's: near 1 float32 has too few steps for the law itself."""
    torch.manual_seed(0)
    alpha = torch.tensor(alphas).expand(N, 3)
    x = torch._sample_dirichlet(alpha.to("xla")).cpu().double()
    assert (x > 0).all() and (x < 1).all()
    torch.testing.assert_close(x.sum(-1), torch.ones(N, dtype=torch.float64), atol=1e-5, rtol=0)
    eager = torch._sample_dirichlet(alpha).double()
    for i in range(len(alphas)):
        assert stats.ks_2samp(x[:, i].numpy(), eager[:, i].numpy()).pvalue > 1e-3, (alphas, i)


def fits(x: torch.Tensor, law) -> bool:
    """Chi-square of the counts against a discrete law, cells of at least 5 expected."""
    values, counts = x.cpu().double().unique(return_counts=True)
    edges = sorted({float(law.ppf(q)) for q in torch.linspace(0.02, 0.98, 15).tolist()})
    cdf = [0.0, *(law.cdf(e) for e in edges), 1.0]
    expected = [len(x) * (b - a) for a, b in itertools.pairwise(cdf)]
    found = [0.0] * len(expected)
    for v, n in zip(values.tolist(), counts.tolist(), strict=True):
        found[sum(v > e for e in edges)] += n
    kept = [(f, e) for f, e in zip(found, expected, strict=True) if e > 5]
    total = sum(e for _, e in kept)
    seen = [f for f, _ in kept]
    return stats.chisquare(seen, [e * sum(seen) / total for _, e in kept]).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.1, 2.0, 9.9, 10.0, 40.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_poisson_passes_chi_square(rate, dtype):
    torch.manual_seed(0)
    x = torch.poisson(full(rate, dtype))
    assert x.dtype == dtype
    assert fits(x, stats.poisson(float(torch.tensor(rate, dtype=dtype))))


@pytest.mark.parametrize(
    ("count", "chance"),
    [(1, 0.3), (10, 0.5), (10, 0.9), (50, 0.01), (200, 0.3), (200, 0.8), (1e6, 0.25), (1e6, 1e-5)],
)
def test_binomial_passes_chi_square(count, chance):
    torch.manual_seed(0)
    x = torch.binomial(full(count), full(chance))
    assert ((x >= 0) & (x <= count)).all()
    assert fits(x, stats.binom(count, float(torch.tensor(chance))))


def test_poisson_of_halves_and_of_very_large_rates():
    torch.manual_seed(0)
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.poisson(full(4.0, dtype))
        assert x.dtype == dtype
        assert abs(x.float().mean().item() - 4) < 0.1
    big = torch.poisson(full(1e10, torch.float64)).cpu()
    assert abs(big.mean().item() / 1e10 - 1) < 1e-6
    assert abs(big.std().item() / 1e5 - 1) < 0.05


def test_edges_of_gamma_and_dirichlet_are_eagers():
    a = torch.tensor([0.0, NAN, -1.0, INF, 1e-3])
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        ours = torch._standard_gamma(a.to("xla", dtype)).cpu()
        least = torch.finfo(dtype).tiny
        assert ours[:3].tolist() == [least] * 3
        assert ours[3] == INF and ours[4] >= least
    # [0, 0] is shared evenly: both draws are the least double.
    b = torch.tensor([[0.0, 0.0], [0.0, 1.0], [NAN, 1.0], [INF, 1.0]])
    assert torch.equal(torch._sample_dirichlet(b.to("xla")).cpu(), torch._sample_dirichlet(b))
    one = torch.tensor(1.0)
    assert torch.equal(torch._sample_dirichlet(one.to("xla")).cpu(), torch._sample_dirichlet(one))
    assert torch._sample_dirichlet(torch.ones(2, 0, device="xla")).shape == (2, 0)


def test_edges_of_poisson_and_binomial():
    assert torch.poisson(torch.tensor([0.0, INF]).to("xla")).tolist() == [0.0, INF]
    # Eager raises; to look would be a read.
    assert torch.poisson(torch.tensor([-1.0, NAN]).to("xla")).isnan().all()
    n = torch.tensor([-1.0, 0.0, 5.0, 5.0, 5.0, 5.0, 5.0])
    p = torch.tensor([0.5, 0.5, 0.0, 1.0, -1.0, 2.0, NAN])
    ours = torch.binomial(n.to("xla"), p.to("xla")).cpu()
    torch.testing.assert_close(ours, torch.binomial(n, p), equal_nan=True, rtol=0, atol=0)
    spread = torch.binomial(torch.full((3, 1), 4.0).to("xla"), torch.tensor(0.5).to("xla"))
    assert spread.shape == (3, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.bool, torch.complex64])
def test_other_dtypes_are_refused_in_eagers_words(dtype):
    x = torch.ones(2).to(dtype)
    check_error(torch._standard_gamma, x)
    check_error(torch._sample_dirichlet, x)
    check_error(lambda x: torch.binomial(x, x), x)
    if dtype != torch.float16:
        check_error(torch.poisson, x)
    check_error(lambda x: torch.binomial(x.double(), x.float()), torch.ones(2))


def test_distributions_have_gradients_and_no_cut(compiles):
    a = torch.tensor([0.5, 2.0, 30.0])
    seen_cuts = []
    for law in (
        lambda p: torch.distributions.Gamma(p, p, validate_args=False),
        lambda p: torch.distributions.Beta(p, p, validate_args=False),
        lambda p: torch.distributions.Dirichlet(p, validate_args=False),
        lambda p: torch.distributions.Chi2(p, validate_args=False),
    ):
        x = a.to("xla").requires_grad_()
        with compiles() as seen:
            law(x).rsample((50,)).sin().sum().backward()
        seen_cuts.append((seen.cuts, seen.fallbacks))
        assert x.grad.isfinite().all() and (x.grad != 0).any()
    assert seen_cuts == [(0, ())] * 4  # StudentT makes a Chi2 that checks its argument


def test_reparametrised_gradient_is_that_of_the_mean():
    """d/da of E[gamma(a)] = d/da of a = 1."""
    torch.manual_seed(0)
    a = full(3.0).requires_grad_()
    torch._standard_gamma(a).sum().backward()
    assert abs(a.grad.mean().item() - 1) < 0.02
