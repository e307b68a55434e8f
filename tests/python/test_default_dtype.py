"""torch.set_default_dtype reaches every result that follows from it, whatever was recorded before.

Each case runs under several defaults one after the other: what is remembered of one must not serve
the next.
"""

import pytest
import torch
from eager import outcome

import torch_pjrt

INTS = torch.tensor([1, 2])
DEFAULTS = (torch.float32, torch.float64, torch.bfloat16, torch.float32)
TOLERANCE = {torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-9}

FACTORIES = {
    "linspace": lambda d: torch.linspace(0, 1, 3, device=d),
    "logspace": lambda d: torch.logspace(0, 1, 3, device=d),
    "arange": lambda d: torch.arange(0, 1, 0.5, device=d),
    "arange_ints": lambda d: torch.arange(3, device=d),
    "range": lambda d: torch.range(0, 3, device=d),
    "eye": lambda d: torch.eye(3, device=d),
    "full": lambda d: torch.full((2,), 1.5, device=d),
    "full_complex": lambda d: torch.full((2,), 1j, device=d),
    "tensor": lambda d: torch.tensor([0.5, 1], device=d),
    "hann_window": lambda d: torch.hann_window(4, device=d),
    "kaiser_window": lambda d: torch.kaiser_window(4, device=d),
    "fftfreq": lambda d: torch.fft.fftfreq(4, device=d),
    "rand": lambda d: torch.rand(3, device=d) * 0,
    "gaussian": lambda d: torch.signal.windows.gaussian(4, device=d),
}
OF_INTS = {
    "div": lambda x: x / 2,
    "mul": lambda x: x * 1.5,
    "mul_complex": lambda x: x * 1j,
    "rsub": lambda x: 1.5 - x,
    "floor_divide": lambda x: x // 1.5,
    "remainder": lambda x: x % 1.5,
    "pow": lambda x: x**0.5,
    "clamp": lambda x: x.clamp(0.5),
    "where": lambda x: torch.where(x > 1, x, 2.5),
    "where_numbers": lambda x: torch.where(x > 1, 1.5, 2),
    "atan2": lambda x: torch.atan2(x, x),
    "xlogy": lambda x: torch.xlogy(2, x),
    "sqrt": torch.sqrt,
    "angle": torch.angle,
    "logit": lambda x: torch.logit(x - 1),
    "logit_bools": lambda x: torch.logit(x > 1),
    "logsumexp": lambda x: torch.logsumexp(x, 0),
    "sinc": torch.sinc,
    "polygamma": lambda x: torch.polygamma(1, x),
    "bessel": torch.special.bessel_j0,
    "zeta": lambda x: torch.special.zeta(x + 1, x),
    "cov": torch.cov,
    "gradient": lambda x: torch.gradient(x)[0],
    "trapezoid": torch.trapezoid,
    "foreach_sqrt": lambda x: torch._foreach_sqrt([x, x.double()]),
    "foreach_div": lambda x: torch._foreach_div([x, x.double()], 2),
    "fft": lambda x: torch.view_as_real(torch.fft.fft(x.double())),
    "sum": lambda x: x.sum(),
}


@pytest.fixture(autouse=True)
def restored():
    yield
    torch.set_default_dtype(torch.float32)


def check_under_all_defaults(program, eager_input, ours_input):
    for dtype in DEFAULTS:
        torch.set_default_dtype(dtype)
        eager, error, _ = outcome(program, eager_input)
        ours, our_error, _ = outcome(program, ours_input)
        assert type(our_error) is type(error), our_error
        if error is None:
            tol = TOLERANCE[dtype]
            ours = [t.cpu() for t in ours] if isinstance(ours, tuple | list) else ours.cpu()
            torch.testing.assert_close(ours, eager, rtol=tol, atol=tol)


@pytest.mark.parametrize("program", FACTORIES.values(), ids=FACTORIES)
def test_factory_makes_the_default_dtype(device, program):
    check_under_all_defaults(program, "cpu", device)


@pytest.mark.parametrize("program", OF_INTS.values(), ids=OF_INTS)
def test_whole_numbers_become_the_default_dtype(device, program):
    check_under_all_defaults(program, INTS, INTS.to(device))


@pytest.mark.parametrize("default", DEFAULTS[1:3], ids=str)
def test_floats_keep_their_dtype(device, default):
    x = torch.ones(3, device=device)
    torch.set_default_dtype(default)
    assert (x * 2.5).dtype == (x + 1).dtype == x.exp().dtype == torch.float32
    assert (x * 1j).dtype == torch.complex64


def test_programs_of_one_default_do_not_serve_another(device, compiles):
    x = INTS.to(device)
    seen = []
    for dtype in DEFAULTS:
        torch.set_default_dtype(dtype)
        with compiles() as made:
            y = x / 3
            torch_pjrt.sync()
        torch.testing.assert_close(y.cpu(), (INTS.to(dtype) / 3), rtol=1e-2, atol=0)
        seen.append(made.count)
    assert seen[3] == 0  # the first one's
    assert seen[1:3] == [1, 1]


def test_model_trains_in_the_default_dtype(device):
    torch.set_default_dtype(torch.float64)

    def losses(where):
        torch.manual_seed(0)
        m = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
        m = m.to(where)
        opt = torch.optim.AdamW(m.parameters(), lr=0.1)
        x, y = torch.linspace(0, 1, 20).view(5, 4).to(where), torch.arange(5, device=where) % 3
        out = []
        for _ in range(4):
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(m(x), y)
            loss.backward()
            opt.step()
            out.append(loss.detach())
        return torch.stack(out).cpu()

    torch.testing.assert_close(losses(device), losses("cpu"), rtol=1e-12, atol=1e-12)
