"""Random numbers follow their seed; numbers that change do not compile anew."""

import torch
from both import in_both_modes, sync


def drawn() -> list[torch.Tensor]:
    torch.manual_seed(11)
    found = [
        torch.zeros(5, device="xla").uniform_(),
        torch.randn(3, device="xla"),
        torch.randperm(6, device="xla"),
        torch.randint(0, 99, (4,), device="xla"),
    ]
    sync()
    return [t.cpu() for t in (*found, torch.bernoulli(torch.full((16,), 0.5, device="xla")))]


@in_both_modes
def test_a_seed_gives_the_same_numbers_again():
    # pytorch/xla#2092
    first, again = drawn(), drawn()
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert first[2].sort().values.tolist() == [0, 1, 2, 3, 4, 5]
    assert first[0].unique().numel() == 5
    assert first[0].min() >= 0
    assert first[0].max() < 1


@in_both_modes
def test_a_saved_state_gives_the_numbers_that_followed_it():
    # pytorch/xla#2092
    torch.rand(3, device="xla")
    sync()
    state = torch.xla.get_rng_state()
    first = torch.rand(4, device="xla").tolist()
    torch.xla.set_rng_state(state)
    assert torch.rand(4, device="xla").tolist() == first


def test_random_numbers_in_a_loop_compile_once(device, compiles):
    # pytorch/xla#2783
    def step():
        a, b = torch.randn(4, 4, device=device), torch.randn(4, 4, device=device)
        assert (a @ b).sum().isfinite().item()

    step()
    with compiles() as seen:
        for _ in range(4):
            step()
    assert seen.count == 0


def test_numbers_that_change_every_step_compile_once_even_where_two_are_equal(device, compiles):
    # pytorch/xla#3604, pytorch/xla#2543
    a, b = torch.ones(2, device=device), torch.ones(2, device=device)

    def step(p, q):
        c = torch.add(a, b, alpha=p)
        d = torch.add(a, c, alpha=q)
        sync()
        assert (c.tolist(), d.tolist()) == ([1 + p] * 2, [1 + q * (1 + p)] * 2)

    step(2.0, 3.0)
    with compiles() as seen:
        for p, q in [(5.0, 7.0), (4.0, 4.0), (1.0, 1.0), (0.0, 6.0)]:
            step(p, q)
    assert seen.count == 0
