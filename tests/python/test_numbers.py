"""A number that selects is a constant at first and an input from its first change on."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

import torch_pjrt

Step = Callable[[torch.Tensor, int], torch.Tensor]


def index_gradient(x: torch.Tensor, i: int) -> torch.Tensor:
    p = x.detach().requires_grad_()
    (p[i] * 3).sum().backward()
    return p.grad


def slice_gradient(x: torch.Tensor, i: int) -> torch.Tensor:
    p = x.detach().requires_grad_()
    (p[i : i + 3, 1:4] * 3).sum().backward()
    return p.grad


def written(x: torch.Tensor, i: int) -> torch.Tensor:
    y = x.clone()
    y[i] = float(i)
    y[:, i] += 1
    return y


def written_in_steps(x: torch.Tensor, i: int) -> torch.Tensor:
    y = x.clone()
    y[i : i + 8 : 2] = 7
    y[1 : 1 + i * 0 + 6 : 3] += x[:2]
    return y


def logit_gradient(x: torch.Tensor, i: int) -> torch.Tensor:
    p = x.detach().requires_grad_()
    y = torch.logit(p, 0.05 * i)
    y.sum().backward()
    return torch.stack([y.detach(), p.grad])


def distance_gradient(x: torch.Tensor, i: int) -> torch.Tensor:
    p = x.detach().requires_grad_()
    torch.cdist(p, x[:5] + 0.25, 2.5 + i).sum().backward()
    return p.grad


def ignore_gradient(x: torch.Tensor, i: int) -> torch.Tensor:
    p = x.detach().requires_grad_()
    target = torch.arange(16, device=x.device) % 8
    F.nll_loss(p, target, ignore_index=i, reduction="sum").backward()
    return p.grad


ORDERS = (2.0, 1.0, 3.0, float("inf"), 1.5, 0.0)


def order_gradient(x: torch.Tensor, i: int) -> torch.Tensor:
    p = x.detach().requires_grad_()
    torch.cdist(p, x[:5] + 0.25, ORDERS[i]).sum().backward()
    return p.grad


def padding_gradient(x: torch.Tensor, i: int) -> torch.Tensor:
    p = x.detach().requires_grad_()
    words = torch.arange(12, device=x.device) % 7
    F.embedding(words, p, padding_idx=i).square().sum().backward()
    return p.grad


def bag_gradient(x: torch.Tensor, i: int) -> torch.Tensor:
    p = x.detach().requires_grad_()
    words = (torch.arange(12, device=x.device) % 7).view(4, 3)
    F.embedding_bag(words, p, mode="mean", padding_idx=i).square().sum().backward()
    return p.grad


def divisor_gradient(x: torch.Tensor, i: int) -> torch.Tensor:
    p = x.detach().view(1, 1, 16, 8).requires_grad_()
    F.avg_pool2d(p, 2, divisor_override=i + 1).square().sum().backward()
    return p.grad


def ctc_gradient(x: torch.Tensor, blank: int, lengths: list[int]) -> torch.Tensor:
    p = x.detach().view(16, 2, 4).requires_grad_()
    targets = torch.tensor([[1, 2], [2, 1]], device=x.device) + (blank == 1)
    F.ctc_loss(p.log_softmax(2), targets, lengths, [2, 2], blank=blank).backward()
    return p.grad


def resize_gradient(mode: str) -> Step:
    def step(x: torch.Tensor, i: int) -> torch.Tensor:
        p = x.detach().view(1, 1, 16, 8).requires_grad_()
        y = F.interpolate(p, scale_factor=1.5 + 0.01 * i, mode=mode)
        y.square().sum().backward()
        return torch.cat([y.detach().flatten(), p.grad.flatten()])

    return step


STEPS: dict[str, Step] = {
    "index": lambda x, i: x[i] + 1,
    "negative index": lambda x, i: x[-1 - i] + 1,
    "slice": lambda x, i: x[i : i + 4] * 2,
    "inner slice": lambda x, i: x[:, i : i + 2] * 2,
    "slices of both": lambda x, i: x[i : i + 4, i : i + 2] * 2,
    "strided slice": lambda x, i: x[i : i + 6 : 2] * 2,
    "slice of a transpose": lambda x, i: x.t()[i : i + 2] * 2,
    "window on flat memory": lambda x, i: x.as_strided((3, 4), (5, 1), i) * 2,
    "overlapping windows": lambda x, i: x.as_strided((3, 4), (2, 1), i) * 2,
    "narrow copy": lambda x, i: torch.narrow_copy(x, 0, i, 3) + 1,
    "diagonal": lambda x, i: x[i : i + 8].diagonal() * 2,
    "select scatter": lambda x, i: torch.select_scatter(x, x[0] * 2, 0, i),
    "slice scatter": lambda x, i: torch.slice_scatter(x, x[:3] * 2, 0, i, i + 3),
    "write": written,
    "write in steps": written_in_steps,
    "gradient of an index": index_gradient,
    "gradient of a slice": slice_gradient,
    "roll": lambda x, i: torch.roll(x, i - 3),
    "roll of dims": lambda x, i: torch.roll(x, (i, -i), (0, 1)) + 1,
    "arange": lambda x, i: torch.arange(i, i + 7, device=x.device) + 1,
    "arange of floats": lambda x, i: torch.arange(i + 0.5, i + 4.5, 1.0, device=x.device),
    "power": lambda x, i: x ** (i * 0.5 - 1),
    "whole power": lambda x, i: x ** (i + 1),
    "power of integers": lambda x, i: (x * 4).long() ** (i + 1),
    "layer_norm eps": lambda x, i: F.layer_norm(x, (8,), eps=1e-3 * i),
    "group_norm eps": lambda x, i: F.group_norm(x, 2, eps=1e-3 * (i + 1)),
    "batch_norm eps": lambda x, i: F.batch_norm(x, None, None, training=True, eps=0.1 * (i + 1)),
    "smooth_l1 beta": lambda x, i: F.smooth_l1_loss(x, x * 0, beta=0.1 * (i + 1)),
    "huber delta": lambda x, i: F.huber_loss(x, x * 0, delta=0.1 * (i + 1)),
    "threshold": lambda x, i: F.threshold(x, 0.1 * i, -1.0),
    "hardshrink": lambda x, i: F.hardshrink(x, 0.1 * i),
    "leaky_relu": lambda x, i: F.leaky_relu(x - 0.5, 0.1 * i),
    "nan_to_num": lambda x, i: torch.nan_to_num(torch.where(x > 0.5, x, x / 0), 7.0, 1.0 + i, -i),
    "nan": lambda x, i: torch.nan_to_num(torch.where(x > 0.5, x, (x - x) / 0), 0.5 * i),
    "logit eps": logit_gradient,
    "variance of a correction": lambda x, i: x.var(1, correction=0.5 + i),
    "deviation and mean": lambda x, i: torch.stack(torch.std_mean(x, 1, correction=0.5 + i)),
    "whole correction": lambda x, i: x.var(1, correction=i),
    "order of a norm": lambda x, i: torch.linalg.vector_norm(x, 2.5 + i, 1),
    "negative order": lambda x, i: torch.norm(x + 1, -1.5 - i, 1),
    "order of a distance": lambda x, i: torch.cdist(x, x[:5] + 0.25, 2.5 + i),
    "order below one": lambda x, i: torch.pdist(x, 0.2 + 0.1 * i),
    "gradient of a distance": distance_gradient,
    "padding that moves": lambda x, i: F.pad(x, (i, 8 - i, 2 * i, 12 - 2 * i), value=0.5),
    "padding of integers": lambda x, i: F.pad((x * 9).long(), (i, 8 - i)),
    "ignored class": lambda x, i: F.cross_entropy(
        x, torch.arange(16, device=x.device) % 8, ignore_index=i
    ),
    "ignored class's gradient": ignore_gradient,
    "k-th value": lambda x, i: torch.kthvalue(x, i + 1, 1).values,
    "k-th of a column": lambda x, i: torch.kthvalue(x, i + 1, 0, keepdim=True).indices,
    "lower triangle": lambda x, i: x.tril(i - 3),
    "upper triangle": lambda x, i: x.triu(2 * i - 5) + 1,
    "decimals": lambda x, i: torch.round(x * 100, decimals=i),
    "orders of all kinds": lambda x, i: torch.linalg.vector_norm(x, ORDERS[i], 1),
    "order of no numbers": lambda x, i: torch.linalg.vector_norm(x[:, :0], i + 1, 1),
    "distances of all kinds": lambda x, i: torch.cdist(x, x[:5] + 0.25, ORDERS[i]),
    "distances of all kinds' gradient": order_gradient,
    "order of a renorm": lambda x, i: torch.renorm(x, 1 + 0.5 * i, 0, 0.7),
    "padding of an embedding": padding_gradient,
    "padding of bags": bag_gradient,
    "divisor of a pooling": divisor_gradient,
    "blank of a ctc loss": lambda x, i: ctc_gradient(x, (0, 3)[i % 2], [16, 15]),
    "lengths of a ctc loss": lambda x, i: ctc_gradient(x, 0, [16 - i, 10 + i]),
    "scale of a nearest resize": resize_gradient("nearest"),
    "scale of an exact resize": resize_gradient("nearest-exact"),
    "scale of a linear resize": resize_gradient("bilinear"),
    "scale of a cubic resize": resize_gradient("bicubic"),
    "order of a polygamma": lambda x, i: torch.polygamma(i, x.double() + 1),
    "fill of positions": lambda x, i: torch.nonzero_static(x > 0.9, size=140, fill_value=-i),
    "number of a host op": lambda x, i: F.multi_margin_loss(
        x, torch.arange(16, device=x.device) % 8, margin=0.5 + i
    ),
    "decimals before the point": lambda x, i: torch.round(x * 1e5, decimals=-1 - i),
}


@pytest.mark.parametrize("name", STEPS)
def test_changing_number_compiles_two_programs_at_most_and_has_eagers_values(
    device, compiles, name
):
    step = STEPS[name]
    torch.manual_seed(3)
    host = torch.rand(16, 8)
    x = host.to(device)
    torch_pjrt.sync(wait=True)
    got = []
    with compiles() as seen:
        for i in range(6):
            out = step(x, i)
            torch_pjrt.sync()
            got.append(out)
    for i, value in enumerate(got):
        torch.testing.assert_close(value.cpu(), step(host, i), rtol=2e-6, atol=2e-6)
    assert (seen.count <= 2, seen.cuts, seen.fallbacks) == (True, 0, ())


def test_number_that_stays_is_a_constant(device):
    x = torch.rand(5, 7, device=device)
    torch_pjrt.sync()
    y = x[2] + 1
    torch_pjrt.sync()
    assert "dynamic_slice" not in torch_pjrt.graph.last().hlo
    del y


@pytest.mark.programs
def test_only_the_number_that_changes_becomes_an_input(device):
    x = torch.rand(6, 9, device=device)
    torch_pjrt.sync()
    for i in range(3):
        y = F.layer_norm(x[i : i + 2], (9,), eps=0.25) + x[4]
        torch_pjrt.sync()
    hlo = torch_pjrt.graph.last().hlo
    assert hlo.count("stablehlo.dynamic_slice") == 1
    assert "0.25" in hlo or "2.5" in hlo
    del y


def test_known_constants_keep_their_own_program(device, compiles):
    x = torch.rand(10, 3, device=device)
    torch_pjrt.sync()
    for i in (0, 1):
        y = x[i] * 5
        torch_pjrt.sync()
    with compiles() as seen:
        for i in (0, 7, 0, 3):
            y = x[i] * 5
            torch_pjrt.sync()
            assert torch.equal(y.cpu(), x.cpu()[i] * 5)
    assert seen.count == 0


def test_two_slices_that_change_at_once_are_one_general_program(device, compiles):
    host = torch.rand(12, 5)
    x = host.to(device)
    torch_pjrt.sync()
    with compiles() as seen:
        for i in range(5):
            a, b = x[i] + 1, x[11 - i] * 2
            torch_pjrt.sync()
            assert torch.equal(a.cpu(), host[i] + 1)
            assert torch.equal(b.cpu(), host[11 - i] * 2)
    assert seen.count == 2


def test_training_on_a_moving_window_compiles_two_programs(device, compiles):
    torch.manual_seed(0)
    data = torch.randn(64, 4, device=device)
    model = torch.nn.Linear(4, 1).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    torch_pjrt.sync()
    with compiles() as seen:
        for i in range(0, 40, 8):
            optimizer.zero_grad()
            model(data[i : i + 8]).square().mean().backward()
            optimizer.step()
            torch_pjrt.sync()
    assert (seen.count, seen.cuts, seen.fallbacks) == (2, 0, ())


def test_cache_that_is_filled_row_by_row_is_updated_in_place(device, compiles):
    cache = torch.zeros(32, 6, device=device) + 0
    torch_pjrt.sync()
    before = torch_pjrt.metrics.counters().get("DonatedBuffers", 0)
    with compiles() as seen:
        for i in range(20):
            cache[i] = torch.full((6,), float(i), device=device)
            torch_pjrt.sync()
    assert seen.count <= 2
    assert torch_pjrt.metrics.counters()["DonatedBuffers"] - before == 20
    assert cache[:, 0].tolist() == [float(i) if i < 20 else 0.0 for i in range(32)]


FUSED: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam": lambda p: torch.optim.Adam(p, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, fused=True, momentum=0.9),
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_steps_whose_momentum_and_decay_change_compile_two_programs(device, compiles, name):
    """As OneCycleLR changes them."""

    def steps(device: torch.device) -> Iterator[torch.Tensor]:
        p = torch.nn.Parameter(torch.linspace(-1, 1, 12, device=device))
        optimizer = FUSED[name]([p])
        for i in range(8):
            part = i / 8 if i > 2 else 0.0
            optimizer.param_groups[0] |= {
                "betas": (0.9 - 0.1 * part, 0.999),
                "momentum": 0.9 - 0.1 * part,
                "weight_decay": part,
            }
            p.grad = torch.linspace(1, 2, 12, device=device) * (i + 1)
            optimizer.step()
            torch_pjrt.sync()
            yield p.detach().clone()

    ours, eager = steps(device), list(steps(torch.device("cpu")))
    got = [next(ours) for _ in range(3)]
    with compiles() as seen:
        got += list(ours)
    for a, b in zip(got, eager, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=2e-6, atol=2e-6)
    assert seen.count <= 2


def test_decay_of_zero_beside_others_is_none(device, compiles):
    """0 times infinity would be nan."""

    def last(device: torch.device) -> torch.Tensor:
        p = torch.nn.Parameter(torch.tensor([1.0, float("inf")], device=device))
        optimizer = torch.optim.SGD([p], lr=0.1, fused=True)
        for decay in (0.1, 0.2, 0.3, 0.0):
            optimizer.param_groups[0]["weight_decay"] = decay
            p.grad = torch.ones_like(p)
            optimizer.step()
            torch_pjrt.sync()
        return p.detach()

    assert torch.allclose(last(device).cpu(), last(torch.device("cpu")), equal_nan=True)


DRAWS: dict[str, Callable[[int, torch.device], torch.Tensor]] = {
    "randint": lambda i, d: torch.randint(0, 5 + i, (50,), device=d),
    "randint of a range": lambda i, d: torch.randint(-i, 50 + 3 * i, (50,), device=d),
    "random_": lambda i, d: torch.empty(50, device=d).random_(10 + i),
}


@pytest.mark.parametrize("name", DRAWS)
def test_ranges_of_random_integers_compile_two_programs_and_draw_the_same(device, compiles, name):
    def draw(alone: bool) -> list[torch.Tensor]:
        torch_pjrt.manual_seed(5)
        out = []
        for i in range(4):
            x = DRAWS[name](i, device)
            for _ in range(i + 1 if alone else 0):  # a graph like no other: a program of constants
                x = -x
            torch_pjrt.sync()
            out.append(-x.cpu() if alone and (i + 1) % 2 else x.cpu())
        return out

    with compiles() as seen:
        drawn = draw(alone=False)
    assert seen.count <= 2
    assert all(torch.equal(a, b) for a, b in zip(drawn, draw(alone=True), strict=True))
