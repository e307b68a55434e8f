"""Special functions and Fourier transforms: eager's values at edges and borders, its layouts."""

import itertools
import math
from functools import partial
from typing import Any

import eager
import pytest
import torch

import torch_pjrt

INF, NAN = float("inf"), float("nan")
EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    INF,
    -INF,
    NAN,
    1e-30,
    -1e-30,
    1e-9,
    0.5,
    -0.5,
    2.0,
    -2.0,
    2.09,
    -2.09,
]
BORDERS = [
    5.0,
    -5.0,
    8.0,
    -8.0,
    8.33,
    50.0,
    51.0,
    100.0,
    104.0,
    -6.1,
    -6.2,
    -26.7,
    -27.0,
    0.1353352,
]
POINTS = torch.tensor([*EDGES, *BORDERS, *torch.linspace(-12, 12, 101).tolist()])

UNARY = [
    "i0",
    "special_i0e",
    "special_i1",
    "special_i1e",
    "special_airy_ai",
    "special_bessel_j0",
    "special_bessel_j1",
    "special_bessel_y0",
    "special_bessel_y1",
    "special_spherical_bessel_j0",
    "special_modified_bessel_i0",
    "special_modified_bessel_i1",
    "special_modified_bessel_k0",
    "special_modified_bessel_k1",
    "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1",
    "special_erfcx",
    "special_ndtri",
    "special_log_ndtr",
]
FAMILIES = [
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]
TRANSFORMS = ["fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"]


def close(ours: torch.Tensor, theirs: torch.Tensor, rtol: float, atol: float) -> None:
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours.cpu(), theirs, rtol=rtol, atol=atol, equal_nan=True)


def fallbacks() -> list[str]:
    return [k for k in torch_pjrt.metrics.counters() if k.startswith("aten::")]


@pytest.mark.parametrize("name", UNARY)
def test_special_function_agrees_with_eager_at_edges_and_borders(name: str) -> None:
    op = getattr(torch.ops.aten, name)
    # float32 rounds a wave's phase of 93 (airy_ai at -27) by 4e-6.
    cases = [
        (POINTS, 1e-5, 4e-6),
        (POINTS.double(), 1e-11, 1e-13),
        (torch.arange(-3, 9), 1e-5, 1e-6),
    ]
    ours = [op(x.to("xla")) for x, _, _ in cases]  # one program
    for y, (x, rtol, atol) in zip(ours, cases, strict=True):
        close(y, op(x), rtol, atol)


@pytest.mark.parametrize("name", FAMILIES)
def test_polynomial_agrees_with_eager_at_every_degree(name: str) -> None:
    op = getattr(torch.ops.aten, f"special_{name}")
    x = torch.tensor([0.0, 1, -1, 0.5, 0.9999999, -0.9999999, 1e-8, 2, -2, 0.3, -0.7, 1.2, INF])
    n = torch.tensor([0.0, 1, 2, 3, 5, 7, 9, 12, -1, 1.5, INF, NAN, 40, 130])
    for dtype, rtol, atol in ((torch.float32, 1e-3, 1e-4), (torch.float64, 1e-9, 1e-11)):
        a, b = (t.to(dtype).reshape(-1) for t in torch.meshgrid(x, n, indexing="ij"))
        close(op(a.to("xla"), b.to("xla")), op(a, b), rtol, atol)


# Eager's kernel leaves its result unset there (PyTorch 2.13.0).
@pytest.mark.programs
def test_polynomial_of_nan_ends_at_once() -> None:
    x = torch.full((3,), NAN, device="xla")
    assert torch.special.legendre_polynomial_p(x, 10**12).isnan().all()


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_agrees_with_eager_in_every_region(name: str) -> None:
    op = getattr(torch, name)
    grid = [0.0, 1e-3, 0.1, 0.45, 0.55, 1, 1.05, 1.5, 5, 19, 25, 40, 150, 199, 201, 500, 1e4]
    a = torch.tensor([*grid, INF, NAN, -1])
    x = torch.tensor([*grid, 1.2, 3, 21, 30, 60, 140, 190, 240, 480, 9900, INF, NAN, -1])
    for dtype, rtol in ((torch.float32, 1e-4), (torch.float64, 1e-10)):
        u, v = (t.to(dtype).reshape(-1) for t in torch.meshgrid(a, x, indexing="ij"))
        close(op(u.to("xla"), v.to("xla")), op(u, v), rtol, rtol)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("shape", [(7,), (4, 6), (3, 4, 5), (2, 2, 3, 2, 4)], ids=str)
def test_transform_has_eagers_values_and_strides(name: str, shape: tuple[int, ...]) -> None:
    transform, check = getattr(torch.fft, name), eager.Checks()
    for norm, back in itertools.product((None, "ortho", "forward"), (False, True)):
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(shape, dtype=dtype)
            if back:
                x = x.permute(*reversed(range(len(shape))))
            check(lambda t, norm=norm: transform(t, norm=norm), x)
    check.agree()


@pytest.mark.parametrize("length", [1, 2, 3, 8, 17, 97, 1000])
def test_transform_of_any_length_agrees_with_eager(length: int) -> None:
    x, check = torch.randn(2, length, dtype=torch.float64), eager.Checks()
    check(torch.fft.fft, x)
    check(torch.fft.rfft, x)
    check(lambda t: torch.fft.irfft(t, n=length), torch.fft.rfft(x))
    check.agree()


def test_transforms_of_some_dims_pad_and_crop_as_eager() -> None:
    x = torch.randn(3, 4, 5, dtype=torch.complex64)
    eager.check(lambda t: torch.fft.ifft2(t, s=(2, 6), dim=(0, 1)), x)
    eager.check(lambda t: torch.fft.fftn(t, dim=(2, 0)), x)
    eager.check(lambda t: torch.fft.fft(t.conj(), n=9, dim=0), x)
    eager.check(lambda t: torch._fft_r2c(t, [0, 1], 0, False), x.real)
    eager.check_error(torch.fft.ihfftn, x)


def test_spectrogram_and_its_inverse_stay_on_the_device() -> None:
    before = fallbacks()
    window = torch.hann_window(64)

    def there_and_back(x: torch.Tensor, w: torch.Tensor) -> Any:
        spectrum = torch.stft(x, 64, window=w, return_complex=True)
        return spectrum, torch.istft(spectrum, 64, window=w)

    eager.check(there_and_back, torch.randn(2, 400), window)
    assert fallbacks() == before


def test_equal_is_computed_on_the_device() -> None:
    before = fallbacks()
    a = torch.tensor([1.0, 2.0])
    for b in (a, a + 1, a[:1], a.double(), torch.tensor([NAN, 1.0])):
        assert torch.equal(a.to("xla"), b.to("xla")) is torch.equal(a, b)
    nan = torch.tensor([NAN], device="xla")
    assert not torch.equal(nan, nan)
    assert fallbacks() == before


def test_factories_fill_an_out_tensor_on_the_device() -> None:
    before = fallbacks()
    for make in (
        lambda out: torch.arange(1, 7, 2, out=out),
        lambda out: torch.linspace(0, 1, 5, out=out),
        lambda out: torch.logspace(0, 1, 5, out=out),
        lambda out: torch.eye(3, 4, out=out),
    ):
        eager.check(make, torch.zeros(0))
        eager.check(make, torch.zeros(0, dtype=torch.float64))
    assert fallbacks() == before


COMPLEX = [torch.complex64, torch.complex128]
INVERSES = ["sqrt", "rsqrt", "reciprocal", "log", "log2", "log10", "log1p"]
INVERSES += ["asin", "acos", "atan", "asinh", "acosh", "atanh"]
FORWARDS = ["sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "expm1"]


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("name", INVERSES)
def test_complex_inverses_keep_to_their_side_of_the_branch_cut(name: str, dtype):
    parts = torch.tensor([-4.0, -0.5, -0.0, 0.0, 0.5, 4.0], dtype=dtype.to_real())
    z = torch.complex(*torch.meshgrid(parts, parts, indexing="ij")).reshape(-1)
    # One by one: eager's vector code knows fewer of these cases than its scalar code.
    want = torch.stack([getattr(v, name)() for v in z])
    got = getattr(z.to("xla"), name)().cpu()
    got, want = torch.view_as_real(got), torch.view_as_real(want)
    torch.testing.assert_close(got, want, equal_nan=True)
    if name not in ("acos", "log1p", "rsqrt"):  # whose zeros' signs are the C library's own
        assert torch.equal(got[want == 0].signbit(), want[want == 0].signbit())


def test_complex_powers_keep_to_their_side_of_the_branch_cut():
    parts = torch.tensor([-4.0, -0.0, 0.0, 4.0])
    z = torch.complex(*torch.meshgrid(parts, parts, indexing="ij")).reshape(-1)
    for e in (0.5, -0.5, -1, -2, 1 / 3):
        eager.check(lambda x, e=e: x.pow(e), z)


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
@pytest.mark.parametrize("name", FORWARDS + [n for n in INVERSES if n != "acos"])
def test_small_parts_of_complex_numbers_are_not_lost(name: str, dtype):
    g = torch.Generator().manual_seed(0)
    size = torch.rand(2, 4000, generator=g, dtype=torch.float64) * 14 - 10
    sign = torch.rand(2, 4000, generator=g, dtype=torch.float64).sub(0.5).sign()
    z = torch.complex(*(size.exp() * sign)).to(dtype)
    want = getattr(z.to(torch.complex128), name)()
    got = getattr(z.to("xla"), name)().cpu().to(torch.complex128)
    # Each part by itself: compared as one number, the larger would hide the smaller.
    eps = torch.finfo(dtype).eps
    for part in ("real", "imag"):
        exact, ours = getattr(want, part), getattr(got, part)
        near = (ours - exact).abs() <= 64 * eps * exact.abs()
        # Where both parts nearly cancel, no formula in this precision keeps the smaller.
        near |= (ours - exact).abs() <= 4 * eps * eps**0.5 * want.abs()
        assert near.double().mean() > 0.98, z[~near][:5]


@pytest.mark.parametrize("dtype", COMPLEX, ids=str)
def test_a_complex_number_with_an_infinite_part_is_of_infinite_size(dtype):
    parts = [0.0, -2.0, math.inf, -math.inf, math.nan]
    z = torch.tensor([complex(a, b) for a in parts for b in parts], dtype=dtype)
    for size in (
        torch.abs,
        *(partial(torch.linalg.vector_norm, ord=k, dim=1) for k in (1, 2, 3, math.inf, -1)),
    ):
        eager.check(size, z if size is torch.abs else z.view(-1, 1))


@pytest.mark.parametrize("exponent", [1j, 0.3 - 0.2j, 2 + 0j, 0j], ids=str)
def test_a_complex_number_is_an_exponent_of_any_tensor(exponent):
    for dtype in (torch.float32, torch.complex64, torch.int32, torch.bool):
        x = torch.tensor([2, 1, 3, 0]).to(dtype)
        eager.check(lambda x: x**exponent, x)
        eager.check(lambda x: x.abs() ** exponent if x.dtype != torch.bool else x**exponent, x)


def test_a_complex_number_is_refused_where_a_real_one_is_meant():
    with pytest.raises(RuntimeError, match="cannot be converted to type double"):
        torch.arange(0, 3j, device="xla")
    assert torch.arange(0, 3 + 0j, device="xla").tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8], ids=str)
def test_trigamma_is_eagers_next_to_its_poles_and_on_them(dtype):
    x = torch.tensor([-3, -2, -1, 0, 1, 5])
    if dtype.is_floating_point:
        x = torch.cat([x, torch.tensor([-2.75, -1.24e-4, 1e-6, 0.5, 0.49, 80.0])])
    eager.check(lambda x: torch.polygamma(1, x), x.to(dtype))
