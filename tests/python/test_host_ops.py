"""Ops without a lowering run PyTorch's CPU kernel inside the program: eager's results, no cut."""

import contextlib
import threading

import pytest
import torch
from eager import assert_equal, check, check_error
from fake_plugin import fake_env

import torch_pjrt

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
linalg = torch.linalg


def matrix(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(3)
    return torch.randn(*shape, dtype=dtype)


def positive(n: int, *batch: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    a = matrix(*batch, n, n, dtype=dtype)
    return a @ a.mH + n * torch.eye(n, dtype=dtype)


def host_ops() -> dict[str, int]:
    counters = torch_pjrt.metrics.counters()
    return {k[8:]: n for k, n in counters.items() if k.startswith("hostop::")}


@pytest.fixture
def whole(compiles):
    """The body records host ops and cuts nothing: checks are left to the program."""

    class Whole:
        def __enter__(self):
            self.before = sum(host_ops().values())
            self.block = compiles()
            self.seen = self.block.__enter__()
            self.no_cuts = torch_pjrt.no_cuts().__enter__()

        def __exit__(self, *error):
            self.no_cuts.__exit__(*error)
            self.block.__exit__(*error)
            if error == (None, None, None):
                assert self.seen.fallbacks == ()
                assert self.seen.cuts == 0
                assert sum(host_ops().values()) > self.before

    return Whole


# Programs that give no more than is unique: no signs, no order of equal values.
PROGRAMS = {
    "svdvals": lambda a: linalg.svdvals(a),
    "svd": lambda a: (lambda u, s, v: (u * s.to(u.dtype)[..., None, :]) @ v)(*linalg.svd(a, False)),
    "qr": lambda a: (lambda q, r: q @ r)(*linalg.qr(a)),
    "pinv": lambda a: linalg.pinv(a),
    "lu_factor": lambda a: linalg.lu_factor(a),
    "lstsq": lambda a: linalg.lstsq(a, a).solution * 1,  # eager's own is a window of more memory
    "matrix_rank": lambda a: linalg.matrix_rank(a),
}
SQUARE = {
    "cholesky": lambda a: linalg.cholesky(a),
    "cholesky_inverse": lambda a: torch.cholesky_inverse(linalg.cholesky(a)),
    "eigvalsh": lambda a: linalg.eigvalsh(a),
    "eigvals": lambda a: linalg.eigvals(a).abs().sort(-1).values,
    "inv": lambda a: linalg.inv(a),
    "det": lambda a: linalg.det(a),
    "slogdet": lambda a: linalg.slogdet(a),
    "solve": lambda a: linalg.solve(a, a * 2),
    "lu": lambda a: linalg.lu(a),
    "ldl": lambda a: linalg.ldl_solve(*linalg.ldl_factor(a), a),
    "matrix_exp": lambda a: linalg.matrix_exp(a / 8),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_host_op_has_eagers_values_and_layout(name, dtype, whole):
    with whole():
        out = check_recorded(PROGRAMS[name], matrix(5, 3, dtype=dtype))
    assert_equal(*out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SQUARE)
def test_square_host_op_has_eagers_values_and_layout(name, dtype, whole):
    with whole():
        out = check_recorded(SQUARE[name], positive(4, dtype=dtype))
    assert_equal(*out)


def check_recorded(program, *args):
    """(ours, eager) of a program, layouts compared, nothing read."""
    eager = program(*args)
    ours = program(*[a.to("xla") for a in args])
    flat = [list(x) if isinstance(x, tuple) else [x] for x in (ours, eager)]
    for a, b in zip(*flat, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        assert torch_pjrt.state(a) in ("ir", "view")
    return flat


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (3, 2, 4, 4), (1, 1)])
@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "eigvalsh", "solve", "lu"])
def test_batched_and_empty_matrices(name, shape):
    check(SQUARE[name], positive(shape[-1], *shape[:-2]))


@pytest.mark.parametrize("name", ["svdvals", "qr", "pinv", "lstsq"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 5, 3), (2, 3, 5)])
def test_batched_and_empty_rectangles(name, shape):
    check(PROGRAMS[name], matrix(*shape))


@pytest.mark.parametrize("name", ["svdvals", "svd", "qr", "pinv"])
def test_gradients_come_from_pytorchs_formulas(name, whole):
    a = matrix(5, 3).requires_grad_()
    with whole():
        x = a.detach().to("xla").requires_grad_()
        PROGRAMS[name](x).square().sum().backward()
    PROGRAMS[name](a).square().sum().backward()
    torch.testing.assert_close(x.grad.cpu(), a.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "eigvalsh", "solve", "matrix_exp"])
def test_gradients_of_square_ones(name, whole):
    a = positive(4).requires_grad_()
    with whole():
        x = a.detach().to("xla").requires_grad_()
        SQUARE[name](x).sum().backward()
    SQUARE[name](a).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), a.grad, rtol=1e-3, atol=1e-4)


def test_loop_with_an_svd_is_one_program(compiles):
    x, w = matrix(6, 6).to("xla"), matrix(6, 6).to("xla")
    with compiles() as seen, torch_pjrt.no_cuts():
        for _ in range(5):
            u, s, v = linalg.svd(x @ w, full_matrices=False)
            w = w - 0.1 * (u * s) @ v
            torch_pjrt.sync()
    assert (seen.count, seen.cuts, seen.fallbacks) == (1, 0, ())


def test_another_tolerance_is_the_same_program(compiles):
    x = matrix(4, 3).to("xla")
    with compiles() as seen:
        for tol in (1e-6, 1e-3, 0.5):
            kept = linalg.lstsq(x, x, rcond=tol).rank
            torch_pjrt.sync()
    assert seen.count == 1
    assert_equal(kept, linalg.lstsq(matrix(4, 3), matrix(4, 3), rcond=0.5).rank)


def test_operands_with_strides_of_their_own():
    a = matrix(4, 6)
    check(lambda a: linalg.svdvals(a.T), a)
    check(lambda a: linalg.svdvals(a[::2, 1:4]), a)
    check(lambda a: linalg.inv(a[:, :4].mT), a)
    check(lambda a: linalg.det(a[1:2, :1].expand(3, 3)), a)
    check(lambda a: linalg.svdvals(torch.complex(a, a).conj()), a)


def test_written_in_place_and_into_out(whole):
    a, b = torch.rand(4) + 0.5, torch.rand(4) + 0.5
    with whole():
        x, y = a.clone().to("xla"), b.to("xla")
        x.igamma_(y)
        view = torch.zeros(2, 4, device="xla")
        torch.igamma(a.to("xla"), y, out=view[1])
        q, r = torch.empty(0, device="xla"), torch.empty(0, device="xla")
        linalg.qr(matrix(3, 3).to("xla"), out=(q, r))
    assert_equal(x, torch.igamma(a, b))
    assert_equal(view, torch.stack([torch.zeros(4), torch.igamma(a, b)]))
    eager = linalg.qr(matrix(3, 3), out=(torch.empty(0), torch.empty(0)))
    assert_equal([q, r], eager)
    assert [q.stride(), r.stride()] == [t.stride() for t in eager]


def test_lists_optional_tensors_and_numbers():
    x = torch.rand(20, 2)
    check(lambda x: torch.histogramdd(x, [3, 4]), x)
    check(lambda x: torch.histogramdd(x, [3, 4], weight=x[:, 0]), x)
    check(lambda x: torch.histogram(x, 5, range=(0.0, 1.0), density=True), x)
    lengths = torch.tensor([3, 0, 17])
    check(lambda x, n: torch.segment_reduce(x, "max", lengths=n, initial=0.5), x, lengths)
    check(lambda x: torch.special.chebyshev_polynomial_t(x, 3), x)
    check(lambda x: torch.special.chebyshev_polynomial_t(2, x.abs().round()), x)


BAD = {
    "cholesky": (lambda a: linalg.cholesky(a), -torch.eye(3)),
    "cholesky of a batch": (lambda a: linalg.cholesky(a), -torch.eye(2).expand(2, 2, 2)),
    "cholesky checked": (lambda a: linalg.cholesky_ex(a, check_errors=True).L, -torch.eye(3)),
    "inv": (lambda a: linalg.inv(a), torch.zeros(2, 2)),
    "solve": (lambda a: linalg.solve(a, a), torch.zeros(2, 2)),
    "eigh": (lambda a: linalg.eigvalsh(a), torch.full((2, 2), torch.nan)),
    "lu_factor": (lambda a: linalg.lu_factor(a).LU, torch.zeros(2, 2)),
    "multi_margin": (
        lambda a: torch.nn.functional.multi_margin_loss(
            a, torch.tensor([5, 0, 0], device=a.device)
        ),
        torch.eye(3),
    ),
    "shape": (lambda a: linalg.svdvals(a), torch.zeros(3)),
    "dtype": (lambda a: linalg.svdvals(a), torch.zeros(3, 3, dtype=torch.int64)),
    "not square": (lambda a: linalg.inv(a), torch.zeros(3, 2)),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_are_eagers_at_the_read(case):
    program, a = BAD[case]
    try:
        program(a)
    except Exception:
        check_error(lambda a: program(a).cpu(), a)
    else:
        check(program, a)  # eager takes it


def test_error_is_raised_by_what_depends_on_it_and_by_nothing_else():
    good = positive(3).to("xla")
    with torch_pjrt.no_cuts():
        bad = linalg.cholesky(-good)
        other = linalg.cholesky(good) + 1
    torch.testing.assert_close(other.cpu(), linalg.cholesky(positive(3)) + 1)
    with pytest.raises(linalg.LinAlgError):
        (bad * 2).cpu()
    with pytest.raises(linalg.LinAlgError):
        bad.cpu()


def synced_and_read(t: torch.Tensor) -> torch.Tensor:
    """A small program raises in the sync, one on a thread of the plugin's at the read."""
    torch_pjrt.sync(wait=True)
    return t.cpu()


def test_sync_computes_the_rest_and_raises_once():
    good = positive(3).to("xla")
    with torch_pjrt.no_cuts():
        bad, other = linalg.cholesky(-good), linalg.inv(good)
    with pytest.raises(linalg.LinAlgError):
        synced_and_read(bad)
    torch_pjrt.sync(wait=True)
    torch.testing.assert_close(other.cpu(), linalg.inv(positive(3)))
    with pytest.raises(linalg.LinAlgError):
        bad.cpu()


def test_large_program_fails_for_its_dependents_only():
    """Large programs run on the plugin's threads: the failure is known at a read only."""
    n = 500
    x = torch.eye(n, device="xla")
    y = torch.tanh(x @ x @ x @ x)
    with torch_pjrt.no_cuts():
        good, bad = linalg.inv(y + x), linalg.cholesky(y - 2 * x)
    with contextlib.suppress(linalg.LinAlgError):
        torch_pjrt.sync()
    eager = torch.eye(n) / (1 + torch.tanh(torch.tensor(1.0)))
    torch.testing.assert_close(good.cpu(), eager)
    for _ in range(2):
        with pytest.raises(linalg.LinAlgError, match="The factorization could not"):
            (bad + 1).cpu()
    torch.testing.assert_close((good + 1).cpu(), eager + 1)


@pytest.mark.programs
def test_stored_program_calls_back_in_another_process(run_python, tmp_path):
    code = """
import torch, torch_pjrt
a = torch.diag(torch.arange(1.0, 5.0))
print(torch.linalg.svdvals(a.to("xla")).tolist())
print({k: v for k, v in torch_pjrt.metrics.counters().items() if "Persistent" in k})
"""
    for expected in ("PersistentCacheMiss", "PersistentCacheHit"):
        done = run_python(code=code, TORCH_PJRT_CACHE=str(tmp_path / "cache"))
        assert done.stdout.splitlines()[0] == "[4.0, 3.0, 2.0, 1.0]", done.stderr
        assert expected in done.stdout


def test_steps_after_an_error_work(compiles):
    x = positive(3).to("xla")
    for sign in (1, -1, 1, -1, 1):
        with torch_pjrt.no_cuts():
            factor = linalg.cholesky(sign * x)
        if sign < 0:
            with pytest.raises(linalg.LinAlgError):
                factor.sum().item()
        else:
            assert_equal(factor, linalg.cholesky(positive(3)))
    del factor
    with compiles() as seen:
        torch_pjrt.sync(wait=True)
    assert seen.count == 0
    assert_equal(x + 1, positive(3) + 1)


def test_checked_factorisation_is_one_call():
    x = positive(3).to("xla")
    with torch_pjrt.no_cuts():
        text = torch_pjrt.graph.of(linalg.cholesky(x) * 2).hlo
        assert text.count("custom_call") == 1
        assert "linalg_check" in torch_pjrt.graph.of(linalg.inv(x)).text


def test_calls_from_several_threads_at_once():
    # Drawn here: threads that seed and draw share one generator, so they may draw each other's.
    mine = matrix(4, 8, 8)
    found: dict[int, list[torch.Tensor]] = {}

    def work(k: int) -> None:
        x = mine[k].to("xla")
        found[k] = [linalg.svdvals(x).cpu() for _ in range(5)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(4):
        assert_equal(found[k], [linalg.svdvals(mine[k])] * 5)


def test_shapes_that_follow_from_values_cut_and_say_so(compiles):
    x = torch.tensor([0.0, 2.0, 0.0, 3.0]).to("xla")
    with compiles() as seen, pytest.warns(UserWarning, match="aten::nonzero"):
        where = torch.nonzero(x)
    assert "aten::nonzero" in seen.fallbacks
    assert_equal(where, torch.tensor([[1], [3]]))


def test_nonzero_static_stays_in_the_graph(compiles):
    x = torch.tensor([0.0, 2.0, 0.0, 3.0])
    with compiles() as seen:
        found = torch.nonzero_static(x.to("xla"), size=3, fill_value=-7)
    assert (seen.cuts, seen.fallbacks) == (0, ())
    assert_equal(found, torch.nonzero_static(x, size=3, fill_value=-7))


def test_modes_of_the_calling_thread_do_not_reach_the_kernel():
    a = positive(3)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        assert_equal(linalg.inv(a.to("xla")), linalg.inv(a))
    grad = torch.func.jacrev(lambda x: linalg.det(x))(a.to("xla"))
    assert_equal(grad, torch.func.jacrev(lambda x: linalg.det(x))(a))


def test_plugin_without_host_calls_cuts_and_counts(run_python, fake):
    code = """
import torch, torch_pjrt, warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(2):
        s = torch.linalg.svdvals(torch.eye(3).to("xla"))
print(s.tolist(), [str(w.message)[:40] for w in seen])
print(sorted(k for k in torch_pjrt.metrics.counters() if "::" in k))
"""
    env = fake_env(fake)
    done = run_python(code=code, **env)
    assert "[1.0, 1.0, 1.0] ['torch_pjrt: aten::_linalg_svd has no low']" in done.stdout, (
        done.stderr
    )
    assert done.stdout.splitlines()[1] == "['aten::_linalg_svd']"


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_a_kernel_that_leaves_a_conj_bit_on_its_result_is_read_right(left, adjoint):
    a = torch.randn(3, 3, dtype=torch.complex64)
    b = torch.randn(*((3, 2) if left else (2, 3)), dtype=torch.complex64)
    lu, pivots = torch.linalg.lu_factor(a)

    def program(*x):
        return torch.linalg.lu_solve(*x, left=left, adjoint=adjoint).resolve_conj().contiguous()

    check(program, lu, pivots, b)


def test_an_error_of_one_host_op_is_never_anothers(device):
    # The three factorisations enter the program in another order than they were recorded in.
    x = torch.tensor([[2.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.3, 0.4, 4.0]])

    def gradient(a):
        return torch.autograd.grad((torch.linalg.lu_factor(a)[0] ** 2).sum(), a)[0]

    a = x.to(device).requires_grad_()
    first, second = (
        gradient(a),
        torch.autograd.grad((torch.linalg.lu_factor(a + 1)[0] ** 2).sum(), a)[0],
    )
    with torch_pjrt.no_cuts():
        bad = torch.Tensor.lu((x * 4).int().to(device))[0]
    with pytest.raises(NotImplementedError, match="lu_cpu"):
        bad.cpu()
    b = x.clone().requires_grad_()
    torch.testing.assert_close(first.cpu(), gradient(b))
    want = torch.autograd.grad((torch.linalg.lu_factor(b + 1)[0] ** 2).sum(), b)[0]
    torch.testing.assert_close(second.cpu(), want)
