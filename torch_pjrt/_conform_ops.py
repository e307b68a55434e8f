"""What a plugin's programs compute: a row for each dtype and each family of ops.

A row runs a small function on the device and on the CPU and compares the numbers. Asked in a
process of its own (torch_pjrt/_conform_child.py), which may be lost.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import torch_pjrt

from . import _C, cache, metrics

__all__ = ["DTYPES", "FAMILIES", "PRODUCT", "Probe"]

Made = Sequence[Tensor]


@dataclass(frozen=True)
class Probe:
    """A row: its name, whether little works without it, what users miss, and what is tried.

    `run` gives words worth telling; it raises AssertionError where numbers differ,
    NotImplementedError where the plugin has no such thing.
    """

    name: str
    required: bool
    missed: str
    run: Callable[[], str]


_TOLERANCE = {
    torch.bfloat16: 1e-2, torch.float16: 1e-2, torch.float32: 2e-5, torch.complex64: 2e-5,
}  # fmt: skip


def _expect(ok: bool, words: str) -> None:
    if not ok:
        raise AssertionError(words)


def _as_numbers(t: Tensor) -> Tensor:
    """Small floats have no comparison of their own."""
    return t.float() if t.dtype.itemsize == 1 and t.is_floating_point() else t


def _counts() -> set[str]:
    """Ops that did not run on the device itself."""
    return {n for n in metrics.counters() if n.startswith(("aten::", "hostop::"))}


def _same(name: str, f: Callable[..., Made], *inputs: Tensor) -> str:
    """Compares f on the device with f on the CPU.

    Tells which ops were calls of programs into this process; raises where one cut the graph.
    """
    want = f(*[x.clone() for x in inputs])
    before = _counts()
    got = [t.cpu() for t in f(*[x.clone().to("xla") for x in inputs])]
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        _expect(g.shape == w.shape, f"{name}: result {i} has shape {g.shape}, expected {w.shape}")
        _expect(g.dtype == w.dtype, f"{name}: result {i} is {g.dtype}, expected {w.dtype}")
        tolerance = _TOLERANCE.get(w.dtype)
        torch.testing.assert_close(
            _as_numbers(g), _as_numbers(w), equal_nan=True, rtol=tolerance, atol=tolerance
        )
    on_host = sorted(_counts() - before)
    if cuts := [n for n in on_host if n.startswith("aten::")]:
        raise NotImplementedError(f"on the host, which cuts the graph: {', '.join(cuts)}")
    return f"calls into the process: {', '.join(on_host)}" if on_host else ""


# ---- dtypes

_DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16,
    torch.uint32, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip
_NEEDED = (torch.bool, torch.int32, torch.int64, torch.float32)


def _dtype(dtype: torch.dtype) -> str:
    """Up, down, and added to itself."""
    values = torch.tensor([0, 1, 2, 3, 5, 8, 13, 21]).reshape(2, 4).to(dtype)
    there = values.to("xla")
    torch_pjrt.sync(wait=True)
    back = there.cpu()
    _expect(
        torch.equal(back.view(torch.uint8), values.view(torch.uint8)),
        f"{dtype}: {back.tolist()} came back of {values.tolist()}",
    )
    if dtype == torch.bool:
        return _same("x ^ y", lambda x: [x ^ ~x], values)
    if dtype in (torch.uint16, torch.uint32, torch.uint64):  # of which eager adds none
        return _same("x + x", lambda x: [(x.long() + x.long()).to(dtype)], values)
    if dtype.itemsize == 1 and dtype.is_floating_point:
        return _same("x + x", lambda x: [(x.float() + x.float()).to(dtype)], values)
    return _same("x + x", lambda x: [x + x], values)


def _dtype_probe(dtype: torch.dtype) -> Probe:
    name = str(dtype).removeprefix("torch.")
    return Probe(name, dtype in _NEEDED, f"tensors of {name}", lambda: _dtype(dtype))


DTYPES = tuple(map(_dtype_probe, _DTYPES))


# ---- families of ops


def _numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _with_gradients(f: Callable[..., Tensor]) -> Callable[..., Made]:
    """F's result and the gradients of its inputs."""

    def run(*inputs: Tensor) -> Made:
        given = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
        out = f(*given)
        weights = torch.linspace(-1, 1, out.numel(), device=out.device).reshape(out.shape)
        (out * weights).sum().backward()
        grads = [x.grad for x in given if x.grad is not None]
        return [out.detach(), *(g.detach() for g in grads)]

    return run


def _family(name: str, missed: str, f: Callable[..., Made], *inputs: Tensor) -> Probe:
    return Probe(name, False, missed, lambda: _same(name, f, *inputs))


def _elementwise(x: Tensor) -> Made:
    return [x * 2 + x.exp(), x.tanh(), x.sigmoid(), x.abs().sqrt(), x.abs().log1p(), F.gelu(x)]


def _integers(x: Tensor, y: Tensor) -> Made:
    return [x // y, x % y, x << 2, x >> 1, x & y, x | y, x ^ y, x.float().to(torch.int8)]


def _special(x: Tensor) -> Made:
    p = x.abs() + 0.5
    return [torch.erf(x), torch.lgamma(p), torch.digamma(p), torch.special.i0(x), torch.erfinv(
        x.clamp(-0.9, 0.9))]  # fmt: skip


def _reductions(x: Tensor) -> Made:
    return [
        x.sum(),
        x.mean(0),
        x.amax(1),
        x.argmin(1),
        x.prod(0),
        x.var(1),
        x.norm(),
        (x > 0).any(0),
    ]


def _scans(x: Tensor) -> Made:
    return [x.cumsum(0), x.cumprod(1), *x.cummax(1), x.logcumsumexp(0)]


def _sorts(x: Tensor) -> Made:
    return [*x.sort(1), *x.topk(3, 1), *x.kthvalue(2, 1), *x.median(1)]


def _indexing(x: Tensor, at: Tensor) -> Made:
    row = at[0]
    return [x[row], x.gather(1, at), x.index_select(1, row), x[:, 1:3], x.index_fill(0, row, 7.0)]


def _scatters(x: Tensor, at: Tensor) -> Made:
    out = x.clone()
    out[at[0], at[1]] = 3.0
    return [out, x.scatter_add(1, at, x), x.index_add(0, at[0], x), x.scatter(1, at, -x)]


def _views(x: Tensor) -> Made:
    y = x.clone()
    y[1:, ::2] += 1
    y.t()[0].mul_(3)
    return [y, y.permute(1, 0).reshape(-1), y.flip(0), y.roll(1, 1), F.pad(y, (1, 2), value=4.0)]


def _complex(x: Tensor) -> Made:
    z = torch.complex(x, x.flip(0))
    return [z * z.conj(), z.exp(), z.abs(), z.real, torch.view_as_real(z / (z + 2))]


def _matmul(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _normalised(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = F.batch_norm(x, None, None, w, b, training=True)
    return F.layer_norm(F.group_norm(y, 2, w, b), y.shape[1:])


def _pools(x: Tensor) -> Tensor:
    return F.avg_pool2d(F.max_pool2d(x, 2), 2) + F.adaptive_avg_pool2d(x, 2)


def _resized(x: Tensor) -> Tensor:
    y = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
    grid = F.affine_grid(torch.eye(2, 3, device=x.device)[None] * 0.9, [1, 4, 6, 6], False)
    return y[..., :6, :6] + F.grid_sample(x[:1], grid, align_corners=False)


def _lstm(x: Tensor) -> Made:
    torch.manual_seed(0)
    net = nn.LSTM(4, 6).to(x.device)
    out, (h, c) = net(x)
    out.sum().backward()
    return [out.detach(), h.detach(), c.detach(), net.weight_hh_l0.grad]


def _losses(x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(x, y) + F.log_softmax(x, 1).mean() + F.huber_loss(x, x.flip(0))


def _loop(x: Tensor) -> Made:
    from torch._higher_order_ops.while_loop import while_loop

    def body(i: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, v * 1.5

    n = torch.zeros((), dtype=torch.int64, device=x.device)
    made: Made = while_loop(lambda i, v: i < 5, body, (n, x))
    return made


# What seed 0 gives on every plugin: `torch.rand(4)`, `torch.randn(2)`.
_UNIFORM = (0.940130889415741, 0.9696090817451477, 0.8814309239387512, 0.7803576588630676)
_NORMAL = (-0.4313476085662842, 0.31296563148498535)


def _random() -> str:
    """The same seed gives the same numbers on every plugin."""
    torch_pjrt.manual_seed(0)
    found = [torch.rand(4, device="xla").cpu(), torch.randn(2, device="xla").cpu()]
    for got, want in zip(found, (_UNIFORM, _NORMAL), strict=True):
        torch.testing.assert_close(got, torch.tensor(want))
    kept = F.dropout(torch.ones(10000, device="xla"), 0.25).cpu().count_nonzero().item()
    _expect(7200 < kept < 7800, f"dropout of 0.25 keeps {kept} of 10000")
    order = torch.randperm(50, device="xla").cpu()
    _expect(sorted(order.tolist()) == list(range(50)), "randperm is no permutation")
    return ""


_X, _SQUARE = _numbers(6, 8), _numbers(8, 8, seed=3)
_WHOLE = torch.arange(-24, 24).reshape(6, 8)
_AT = torch.tensor([[0, 2, 1, 5, 3, 4, 2, 0]] * 6)
_ROWS = torch.tensor([[0, 2, 1, 5, 3, 4]] * 6)
_IMAGE = _numbers(2, 4, 8, 8, seed=4)
_HEADS = tuple(_numbers(2, 3, 8, 4, seed=s) for s in (5, 6, 7))

FAMILIES = (
    _family("elementwise functions", "most of PyTorch", _elementwise, _X),
    _family("comparison and selection", "most of PyTorch",
            lambda x: [x > 0, torch.where(x > 0, x, -x), x.isnan(), x.clamp(-1, 1)], _X),
    _family("integers and bits", "indices and masks", _integers, _WHOLE, _WHOLE.abs() + 1),
    _family("special functions", "torch.special", _special, _X),
    _family("igamma", "torch.special.gammainc, distributions.Gamma.cdf",
            lambda x: [torch.special.gammainc(x.abs() + 0.5, x.abs() + 1)], _X),
    _family("reductions", "sums, means, norms", _reductions, _X),
    _family("running sums", "cumsum, cummax, logcumsumexp", _scans, _X),
    _family("sorting", "sort, topk, median", _sorts, _X),
    _family("indexing", "x[i], gather", _indexing, _X, _ROWS),
    _family("scattering", "x[i] = y, scatter_add, index_add", _scatters, _numbers(6, 6), _ROWS),
    _family("embedding", "nn.Embedding",
            _with_gradients(lambda w, i: F.embedding(i, w)), _X, _AT % 6),
    _family("views and updates in place", "views, slices that are written", _views, _X),
    _family("complex numbers", "complex tensors", _complex, _X),
    _family("products of float32", "nn.Linear, torch.matmul",
            _with_gradients(_matmul), _X, _SQUARE),
    _family("batches of products", "torch.bmm, torch.einsum",
            _with_gradients(_matmul), _numbers(3, 4, 5), _numbers(3, 5, 6)),
    _family("products of bfloat16", "autocast",
            lambda x, y: [x.bfloat16() @ y.bfloat16()], _X, _SQUARE),
    _family("products of int64", "matmul of whole numbers",
            lambda x: [x @ x.t(), F.conv1d(x[None], x[:, None, :3], groups=6)], _WHOLE),
    _family("products of float64", "float64 models", lambda x: [x @ x.t()], _X.double()),
    _family("triangular systems", "torch.linalg.solve_triangular",
            lambda x: [torch.linalg.solve_triangular(x.tril() + 4 * torch.eye(
                8, device=x.device), x, upper=False)], _SQUARE),
    _family("convolution", "nn.Conv2d",
            _with_gradients(lambda x, w: F.conv2d(x, w, padding=1)), _IMAGE, _numbers(6, 4, 3, 3)),
    _family("grouped convolution", "depthwise nn.Conv2d",
            _with_gradients(lambda x, w: F.conv2d(x, w, groups=4)), _IMAGE, _numbers(8, 1, 3, 3)),
    _family("transposed convolution", "nn.ConvTranspose2d",
            _with_gradients(lambda x, w: F.conv_transpose2d(x, w, stride=2)),
            _IMAGE, _numbers(4, 3, 3, 3)),
    _family("pooling", "nn.MaxPool2d, nn.AvgPool2d", _with_gradients(_pools), _IMAGE[..., :8, :8]),
    _family("norms", "nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm",
            _with_gradients(_normalised), _IMAGE, _numbers(4), _numbers(4, seed=8)),
    _family("resizing and sampling", "F.interpolate, F.grid_sample",
            _with_gradients(_resized), _IMAGE[:, :, :6, :6]),
    _family("softmax and losses", "cross entropy", _with_gradients(_losses), _X, torch.arange(6)),
    _family("attention", "F.scaled_dot_product_attention", _with_gradients(_attention), *_HEADS),
    _family("LSTM", "nn.LSTM, nn.GRU", _lstm, _numbers(5, 2, 4)),
    _family("FFT", "torch.fft, torch.stft",
            lambda x: [torch.fft.fft(x), torch.fft.rfft2(x), torch.fft.irfft(torch.fft.rfft(x))],
            _SQUARE),
    _family("FFT of float64", "torch.fft of float64",
            lambda x: [torch.fft.fft(x), torch.fft.ifft(torch.fft.fft(x))], _SQUARE.double()),
    _family("loops on the device", "while_loop, igamma", _loop, _X),
    Probe("random numbers", False, "dropout, sampling; the same seed on every device", _random),
    _family("factorisations", "torch.linalg.svd, qr, eigh, ... cut the graph",
            lambda x: [torch.linalg.eigvalsh(x @ x.t())], _SQUARE),
)  # fmt: skip


# ---- the product


def _training() -> str:
    """A training step learns what eager's does, and updates its weights in place."""
    x, y = _numbers(16, 8, seed=9), _numbers(16, 2, seed=10)

    def train(device: str) -> list[Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 4096), nn.ReLU(), nn.Linear(4096, 2)).to(device)
        opt = torch.optim.AdamW(net.parameters(), lr=0.01)
        for _ in range(4):
            opt.zero_grad()
            F.mse_loss(net(x.to(device)), y.to(device)).backward()
            opt.step()
            torch_pjrt.sync()
        return [p.detach().cpu() for p in net.parameters()]

    for got, want in zip(train("xla"), train("cpu"), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
    given = torch.xla.memory_stats()["donated_bytes"]  # type: ignore[attr-defined]
    if not given:
        raise NotImplementedError("no buffer was given up: weights are copied at each step")
    return f"{given} bytes updated in place"


def _stored() -> str:
    """A program that was stored is loaded instead of compiled, and computes the same."""

    def compute() -> Tensor:
        torch_pjrt.sync(wait=True)
        _C.clear_programs()
        return (torch.arange(5.0).to("xla") * 3 + 1).cpu()

    with tempfile.TemporaryDirectory() as folder:
        cache.use(folder)
        try:
            want, compiled = compute(), metrics.compiles()
            got, hits = compute(), cache.stats().hits
        finally:
            cache.use(None)
    if not hits or metrics.compiles() > compiled:
        raise NotImplementedError("the program was compiled again")
    _expect(torch.equal(got, want), f"loaded: {got.tolist()}, compiled: {want.tolist()}")
    return ""


PRODUCT = (
    Probe("a training step", True, "training", _training),
    Probe("programs kept on disk", False, "each process compiles anew", _stored),
)
