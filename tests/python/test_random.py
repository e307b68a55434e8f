"""Random numbers: seeds reproduce, states save and restore, distributions are right."""

import pytest
import torch
from torch.nn import functional as F

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
