"""Random numbers: seeds reproduce, states save and restore, distributions are right."""

import math

import pytest
import torch
from scipy import stats
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torch_pjrt

N = 20_000


def draw(device="xla", **options) -> torch.Tensor:
    return torch.rand(8, device=device, **options).cpu()


def test_same_seed_same_numbers(device):
    torch.manual_seed(7)
    a = [
        torch.rand(4, device=device),
        torch.randn(3, device=device),
        torch.randperm(9, device=device),
    ]
    torch.manual_seed(7)
    b = [
        torch.rand(4, device=device),
        torch.randn(3, device=device),
        torch.randperm(9, device=device),
    ]
    for x, y in zip(a, b, strict=True):
        assert torch.equal(x.cpu(), y.cpu())


def test_other_seed_other_numbers():
    torch.manual_seed(7)
    a = draw()
    torch.manual_seed(8)
    assert not torch.equal(draw(), a)


def test_two_draws_differ():
    assert not torch.equal(draw(), draw())


def test_syncs_between_draws_change_nothing(device):
    def both(sync: bool) -> torch.Tensor:
        torch.manual_seed(3)
        a = torch.randn(5, device=device)
        if sync:
            torch_pjrt.sync(wait=True)
        b = torch.randn(5, device=device)
        return torch.cat([a, b]).cpu()

    assert torch.equal(both(True), both(False))


def test_reading_twice_gives_one_value(device):
    x = torch.randn(5, device=device)
    assert torch.equal(x.cpu(), x.cpu())
    y = x * 1
    assert torch.equal(x.cpu(), y.cpu())


def test_a_pending_draw_is_drawn_once(device):
    x = torch.randn(5, device=device)
    y, z = x + 0, x.clone()
    assert torch.equal(y.cpu(), z.cpu())
    assert torch.equal(x.cpu(), y.cpu())


def test_drawing_does_not_recompile(device, compiles):
    with compiles() as seen:
        for _ in range(4):
            torch.randn(6, 7, device=device).sum()
            (torch.rand(6, 7, device=device) + torch.randn(6, 7, device=device)).cpu()
    assert seen.count == 1


def test_replays_draw_new_numbers_and_go_on_from_a_saved_state(device, compiles):
    x = torch.ones(6, 5, device=device)

    def step() -> torch.Tensor:
        y = F.dropout(x, 0.4) + torch.rand_like(x)
        torch_pjrt.sync()
        return y

    step()
    state = torch.xla.get_rng_state()
    with compiles() as seen:
        first = [step().cpu() for _ in range(3)]
        torch.xla.set_rng_state(state)
        again = [step().cpu() for _ in range(3)]
    assert seen.count == 0
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_seeding_does_not_recompile(device, compiles):
    with compiles() as seen:
        for seed in range(4):
            torch.manual_seed(seed)
            torch.randn(7, 6, device=device).cpu()
    assert seen.count == 1


def test_cpu_numbers_are_left_alone(device):
    torch.manual_seed(3)
    want = torch.rand(4)
    torch.manual_seed(3)
    torch.rand(100, device=device).cpu()
    assert torch.equal(torch.rand(4), want)


# ---- generators and states ------------------------------------------------------------------


def test_generator_of_the_device(device):
    g = torch.Generator(device=device).manual_seed(5)
    assert g.device.type == "xla"
    assert g.initial_seed() == 5
    a = draw(generator=g)
    g.manual_seed(5)
    assert torch.equal(draw(generator=g), a)
    assert not torch.equal(draw(generator=g), a)


def test_generator_leaves_the_default_one_alone(device):
    torch.manual_seed(3)
    want = draw()
    torch.manual_seed(3)
    draw(generator=torch.Generator(device=device).manual_seed(9))
    assert torch.equal(draw(), want)


def test_generator_state_can_be_put_back(device):
    g = torch.Generator(device=device)
    g.seed()
    state = g.get_state()
    assert state.dtype == torch.uint8
    a = draw(generator=g)
    g.set_state(state)
    assert torch.equal(draw(generator=g), a)
    other = torch.Generator(device=device)
    other.set_state(state)
    assert torch.equal(draw(generator=other), a)


def test_generator_clone_goes_its_own_way(device):
    g = torch.Generator(device=device).manual_seed(2)
    copy = g.clone_state()
    assert torch.equal(draw(generator=g), draw(generator=copy))


def test_generator_of_another_device_is_refused(device):
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(2, device=device, generator=torch.Generator()).cpu()


def test_rng_state_survives_saving(device, tmp_path):
    torch.manual_seed(11)
    draw()
    torch.save(torch.xla.get_rng_state(), tmp_path / "state")
    a = draw()
    torch.xla.set_rng_state(torch.load(tmp_path / "state"))
    assert torch.equal(draw(), a)


def test_wrong_state_is_refused():
    with pytest.raises((RuntimeError, TypeError)):
        torch.xla.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_fork_rng_puts_the_state_back(device):
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type="xla"):
        torch.manual_seed(99)
        draw()
    a = draw()
    torch.manual_seed(1)
    assert torch.equal(draw(), a)


def test_seed_gives_new_numbers():
    torch.manual_seed(1)
    a = draw()
    torch.xla.seed()
    assert not torch.equal(draw(), a)


# ---- distributions --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_uniform_is_uniform(device, dtype):
    x = torch.rand(N, dtype=dtype, device=device)
    assert x.dtype == dtype
    x = x.cpu().double()
    assert (x.min() >= 0, x.max() < 1) == (True, True)
    assert x.mean().item() == pytest.approx(0.5, abs=0.01)
    assert x.var().item() == pytest.approx(1 / 12, abs=0.005)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_normal_is_normal(device, dtype):
    x = torch.randn(N, dtype=dtype, device=device).cpu().double()
    assert x.isfinite().all()
    assert x.mean().item() == pytest.approx(0, abs=0.03)
    assert x.std().item() == pytest.approx(1, abs=0.02)
    assert (x.abs() < 1).double().mean().item() == pytest.approx(0.6827, abs=0.015)
    assert (x**3).mean().item() == pytest.approx(0, abs=0.15)


def test_normal_with_mean_and_std(device):
    x = torch.empty(N, device=device).normal_(5, 0.5).cpu()
    assert x.mean().item() == pytest.approx(5, abs=0.02)
    assert x.std().item() == pytest.approx(0.5, abs=0.02)
    mean = torch.tensor([0.0, 100.0], device=device).expand(N // 2, 2)
    y = torch.normal(mean, 1.0).cpu()
    assert y.mean(0).tolist() == pytest.approx([0, 100], abs=0.05)


def test_uniform_between_bounds(device):
    x = torch.empty(N, device=device).uniform_(-3, 5).cpu()
    assert (x.min() >= -3, x.max() < 5) == (True, True)
    assert x.mean().item() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_randint_stays_in_range(device, dtype):
    x = torch.randint(3, 9, (N,), dtype=dtype, device=device).cpu()
    assert x.dtype == dtype
    assert x.unique().tolist() == [3, 4, 5, 6, 7, 8]
    assert x.double().mean().item() == pytest.approx(5.5, abs=0.05)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (torch.float16, 3, 65506), (torch.float16, -65505, 3), (torch.float16, 0, 65505),
        (torch.bfloat16, 0, 2**40), (torch.int8, 0, 129), (torch.uint8, -1, 3),
        (torch.bool, 0, 3),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*out of bounds")
def test_a_range_beyond_the_dtype_is_refused_as_in_eager(device, dtype, low, high):
    said = []
    for d in ("cpu", device):
        try:
            torch.empty(4, dtype=dtype, device=d).random_(low, high)
            said.append(None)
        except RuntimeError as e:
            said.append(str(e).splitlines()[0])
    assert said[0] == said[1]


def test_randperm_is_a_permutation(device):
    x = torch.randperm(1000, device=device).cpu()
    assert torch.equal(x.sort().values, torch.arange(1000))
    assert not torch.equal(x, torch.arange(1000))


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_bernoulli(device, p):
    x = torch.empty(N, device=device).bernoulli_(p).cpu()
    assert set(x.unique().tolist()) <= {0.0, 1.0}
    assert x.mean().item() == pytest.approx(p, abs=0.015)
    y = torch.bernoulli(torch.full((N,), p, device=device)).cpu()
    assert y.mean().item() == pytest.approx(p, abs=0.015)


def test_exponential(device):
    x = torch.empty(N, device=device).exponential_(2.0).cpu()
    assert x.min() >= 0
    assert x.mean().item() == pytest.approx(0.5, abs=0.02)


def test_multinomial(device):
    weights = torch.tensor([0.0, 1.0, 3.0], device=device)
    x = torch.multinomial(weights, 4000, replacement=True).cpu()
    share = x.bincount(minlength=3) / 4000
    assert share.tolist() == pytest.approx([0, 0.25, 0.75], abs=0.04)
    assert sorted(torch.multinomial(weights, 2).tolist()) == [1, 2]


# ---- whole distributions, with seeds so that chance has no say -------------------------------

LEAST_P = 1e-3  # a right generator fails this for one seed in a thousand

CONTINUOUS = {
    "uniform_": (lambda t: t.uniform_(-2, 3), stats.uniform(-2, 5).cdf),
    "rand": (lambda t: torch.rand_like(t), stats.uniform(0, 1).cdf),
    "normal_": (lambda t: t.normal_(1, 2), stats.norm(1, 2).cdf),
    "randn": (lambda t: torch.randn_like(t), stats.norm(0, 1).cdf),
    "normal_tensors": (lambda t: torch.normal(torch.zeros_like(t), 3.0), stats.norm(0, 3).cdf),
    "exponential_": (lambda t: t.exponential_(1.5), stats.expon(scale=1 / 1.5).cdf),
    "cauchy_": (lambda t: t.cauchy_(1, 2), stats.cauchy(1, 2).cdf),
    "log_normal_": (lambda t: t.log_normal_(0.5, 0.7), stats.lognorm(0.7, scale=math.exp(0.5)).cdf),
    "gamma": (lambda t: torch._standard_gamma(torch.full_like(t, 2.5)), stats.gamma(2.5).cdf),
    "gamma_small": (lambda t: torch._standard_gamma(torch.full_like(t, 0.5)), stats.gamma(0.5).cdf),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distribution_passes_kolmogorov_and_smirnov(name, dtype, device):
    draw_into, cdf = CONTINUOUS[name]
    torch.manual_seed(20)
    x = draw_into(torch.empty(N, dtype=dtype, device=device)).cpu()
    assert x.dtype == dtype
    assert x.isfinite().all()
    assert stats.kstest(x.double().numpy(), cdf).pvalue > LEAST_P


def ones(n: int = N) -> torch.Tensor:
    return torch.ones(n, device="xla")


DISCRETE = {
    "randint": (lambda: torch.randint(2, 9, (N,), device="xla"), stats.randint(2, 9)),
    "random_": (lambda: ones().random_(0, 5), stats.randint(0, 5)),
    "random_to": (lambda: ones().long().random_(11), stats.randint(0, 11)),
    "bernoulli": (lambda: torch.bernoulli(ones() * 0.3), stats.bernoulli(0.3)),
    "bernoulli_": (lambda: ones().bernoulli_(0.85), stats.bernoulli(0.85)),
    "geometric_": (lambda: ones().geometric_(0.4), stats.geom(0.4)),
    "poisson_small": (lambda: torch.poisson(ones() * 0.7), stats.poisson(0.7)),
    "poisson": (lambda: torch.poisson(ones() * 4.5), stats.poisson(4.5)),
    "poisson_large": (lambda: torch.poisson(ones() * 40), stats.poisson(40)),
    "binomial": (lambda: torch.binomial(ones() * 12, ones() * 0.3), stats.binom(12, 0.3)),
    "binomial_likely": (lambda: torch.binomial(ones() * 12, ones() * 0.8), stats.binom(12, 0.8)),
    "binomial_many": (lambda: torch.binomial(ones() * 100, ones() * 0.5), stats.binom(100, 0.5)),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([1.0, 2.0, 5.0], device="xla"), N, True),
        stats.rv_discrete(values=([0, 1, 2], [1 / 8, 2 / 8, 5 / 8])),
    ),
    "dropout": (lambda: F.dropout(ones(), 0.25) / (4 / 3), stats.bernoulli(0.75)),
    "randperm_first": (
        lambda: torch.stack([torch.randperm(6, device="xla")[0] for _ in range(600)]),
        stats.randint(0, 6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distribution_passes_chi_square(name):
    draw_it, law = DISCRETE[name]
    torch.manual_seed(21)
    x = draw_it().cpu().double().round().long()
    n = x.numel()
    values = [v for v in range(int(x.min()), int(x.max()) + 1) if law.pmf(v) * n >= 8]
    seen = [int((x == v).sum()) for v in values]
    want = [law.pmf(v) * n for v in values]
    rest, rest_want = n - sum(seen), n - sum(want)
    if rest_want > 1e-6 * n:  # the tails as one class
        seen, want = [*seen, rest], [*want, rest_want]
    else:
        assert rest == 0
    assert stats.chisquare(seen, [w * n / sum(want) for w in want]).pvalue > LEAST_P


def test_multinomial_without_replacement_never_repeats(device):
    torch.manual_seed(22)
    weights = torch.tensor([4.0, 2.0, 1.0, 1.0, 0.0], device=device).expand(3000, 5)
    x = torch.multinomial(weights, 3).cpu()
    assert (x.sort(1).values.diff(dim=1) > 0).all()
    assert (x < 4).all()
    first = x[:, 0].bincount(minlength=4).double()
    assert stats.chisquare(first, torch.tensor([4.0, 2, 1, 1]) / 8 * 3000).pvalue > LEAST_P


def test_draws_are_not_correlated_with_each_other(device):
    torch.manual_seed(23)
    a, b = (torch.randn(N, device=device).cpu().double() for _ in range(2))
    for x, y in ((a, b), (a[:-1], a[1:]), (a[::2], a[1::2])):
        assert abs(torch.corrcoef(torch.stack([x, y]))[0, 1].item()) < 4 / N**0.5


def test_integers_reach_all_their_bits(device):
    torch.manual_seed(24)
    x = torch.randint(-(2**62), 2**62, (4000,), device=device).cpu()
    for bit in range(62):
        assert abs(((x >> bit) & 1).double().mean().item() - 0.5) < 0.04


# ---- the same numbers whatever happens around them --------------------------------------------


def numbers(cut, device) -> torch.Tensor:
    """Draws of all kinds with `cut` between them."""
    torch.manual_seed(30)
    x, out = torch.ones(6, device=device), []
    for draw_next in (
        lambda: torch.rand(6, device=device),
        lambda: F.dropout(x, 0.5),
        lambda: x.clone().normal_(),
        lambda: torch.randint(9, (6,), device=device).float(), lambda: torch.bernoulli(x / 2),
        lambda: torch.randperm(6, device=device).float(), lambda: x.clone().exponential_(),
    ):  # fmt: skip
        out.append(draw_next())
        cut(out[-1])
    return torch.stack([t.cpu() for t in out])


CUTS = {
    "sync": lambda t: torch_pjrt.sync(),
    "wait": lambda t: torch_pjrt.sync(wait=True),
    "item": lambda t: t[0].item(),
    "print": lambda t: repr(t),
    "nonzero": lambda t: t.nonzero(),
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_graph_cuts_change_no_number(cut, device):
    assert torch.equal(numbers(cut, device), numbers(lambda t: None, device))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_dropout_draws_its_mask_again(reentrant, device):
    x = torch.ones(400, device=device, requires_grad=True)
    torch.manual_seed(31)
    y = checkpoint(lambda t: F.dropout(t * 1, 0.5) * t, x, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), 2 * y.detach().cpu())
    after = draw()
    torch.manual_seed(31)
    F.dropout(torch.ones(400, device=device), 0.5)
    assert torch.equal(draw(), after)  # the second forward pass left the generator alone


def test_fork_rng_of_the_device_with_a_draw_pending_outside(device):
    torch.manual_seed(32)
    before = torch.rand(4, device=device)
    with torch.random.fork_rng(device_type="xla"):
        torch.rand(4, device=device)
    after = torch.rand(4, device=device)
    torch.manual_seed(32)
    want = [torch.rand(4, device=device) for _ in range(2)]
    assert torch.equal(torch.stack([before, after]).cpu(), torch.stack(want).cpu())


def test_state_of_all_devices_round_trips(device):
    torch.manual_seed(33)
    states = torch.xla.get_rng_state_all()
    a = draw()
    torch.xla.set_rng_state_all(states)
    assert torch.equal(draw(), a)
    assert torch.xla.initial_seed() == 33


def test_modules_are_made_alike_from_one_seed(device):
    def made() -> list[torch.Tensor]:
        torch.manual_seed(34)
        with torch.device(device):
            return [p.detach().cpu() for p in torch.nn.LSTM(3, 4).parameters()]

    assert all(torch.equal(a, b) for a, b in zip(made(), made(), strict=True))


# ---- dropout --------------------------------------------------------------------------------


def test_dropout_keeps_scale_and_uses_one_mask_backward(device):
    x = torch.ones(N, device=device, requires_grad=True)
    y = F.dropout(x, 0.3)
    y.sum().backward()
    kept = y.detach().cpu()
    assert kept.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert (kept == 0).float().mean().item() == pytest.approx(0.3, abs=0.015)
    assert torch.equal(x.grad.cpu(), kept)


def test_dropout_in_eval_is_identity(device):
    x = torch.ones(5, device=device)
    assert F.dropout(x, 0.5, training=False).tolist() == [1] * 5
    assert F.dropout(x, 0.0).tolist() == [1] * 5
    assert F.dropout(x, 1.0).tolist() == [0] * 5


def test_in_place_draw_through_a_view_leaves_the_rest(device):
    x = torch.full((4, 4), 7.0, device=device)
    x[1].uniform_()
    got = x.cpu()
    assert (got[[0, 2, 3]] == 7).all()
    assert (got[1] < 1).all()


def test_initialisers_have_the_right_scale(device):
    w = torch.empty(200, 300, device=device)
    torch.nn.init.kaiming_uniform_(w, a=5**0.5)
    assert w.std().item() == pytest.approx((1 / 300 / 3) ** 0.5, rel=0.05)
    torch.nn.init.xavier_normal_(w)
    assert w.std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.05)
    torch.nn.init.trunc_normal_(w, std=0.02)
    assert w.abs().max().item() <= 2
    torch.nn.init.orthogonal_(w)
    eye = (w @ w.t()).cpu()
    torch.testing.assert_close(eye, torch.eye(200), atol=1e-4, rtol=0)
