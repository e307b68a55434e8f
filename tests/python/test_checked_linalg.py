"""Factorisations that check themselves raise at their line; their _ex forms read nothing."""

import pytest
import torch
from eager import assert_equal, first_line
from torch import linalg

import torch_pjrt

BAD = -torch.eye(3)
ZERO = torch.zeros(3, 3)
NAN = torch.full((3, 3), torch.nan)

# What raises, and an input of which eager raises.
RAISING = {
    "cholesky": (linalg.cholesky, BAD),
    "cholesky of a batch": (linalg.cholesky, torch.stack([torch.eye(3), BAD])),
    "torch.cholesky": (torch.cholesky, BAD),
    "cholesky_ex that checks": (lambda a: linalg.cholesky_ex(a, check_errors=True), BAD),
    "inv": (linalg.inv, ZERO),
    "torch.inverse": (torch.inverse, ZERO),
    "inv_ex that checks": (lambda a: linalg.inv_ex(a, check_errors=True), ZERO),
    "inverse of a method": (lambda a: a.inverse(), ZERO),
    "solve": (lambda a: linalg.solve(a, torch.eye(3, device=a.device)), ZERO),
    "solve_ex that checks": (
        lambda a: linalg.solve_ex(a, torch.eye(3, device=a.device), check_errors=True),
        ZERO,
    ),
    "tensorinv": (lambda a: linalg.tensorinv(a, ind=1), ZERO),
    "matrix_power": (lambda a: linalg.matrix_power(a, -1), ZERO),
    "lu_factor": (linalg.lu_factor, ZERO),
    "ldl_factor": (linalg.ldl_factor, ZERO),
    "svd": (linalg.svd, NAN),
    "torch.svd": (torch.svd, NAN),
    "svdvals": (linalg.svdvals, NAN),
    "pinv": (linalg.pinv, NAN),
    "nuclear norm": (lambda a: linalg.matrix_norm(a, "nuc"), NAN),
    "eigh": (linalg.eigh, NAN),
    "eigvalsh": (linalg.eigvalsh, NAN),
    "eig": (linalg.eig, NAN),
    # linalg.eigvals of NaN ends this PyTorch's CPU kernel with a segmentation fault.
    "vmap": (torch.vmap(linalg.cholesky), torch.stack([torch.eye(3), BAD])),
    "jacobian": (torch.func.jacrev(linalg.inv), ZERO),
    "out=": (lambda a: linalg.cholesky(a, out=torch.empty(0, device=a.device)), BAD),
}


@pytest.mark.parametrize("name", RAISING)
def test_raises_at_its_line_what_eager_raises(name):
    program, a = RAISING[name]
    try:
        program(a)
    except RuntimeError as e:
        eager = e
    else:
        pytest.skip("this PyTorch's CPU kernel takes it")
    with pytest.raises(type(eager)) as ours:
        program(a.to("xla"))  # nothing is read afterwards
    assert first_line(ours.value) == first_line(eager)
    torch_pjrt.sync(wait=True)  # and nothing is left that raises


def test_jitter_retries_find_the_matrix_that_is_positive():
    a = torch.tensor([[1.0, 1.0], [1.0, 1.0 - 1e-3]]).to("xla")
    jitter, tried = 0.0, 0
    while True:
        try:
            factor = linalg.cholesky(a + jitter * torch.eye(2, device="xla"))
            break
        except RuntimeError:
            jitter, tried = max(10 * jitter, 1e-4), tried + 1
    assert tried == 2
    assert_equal(factor, linalg.cholesky(a.cpu() + jitter * torch.eye(2)))


def test_solve_or_pinv_takes_the_other_branch():
    a, b = torch.ones(2, 2, device="xla"), torch.ones(2, 1, device="xla")
    try:
        x = linalg.solve(a, b)
    except linalg.LinAlgError:
        x = linalg.pinv(a) @ b
    assert_equal(x, torch.full((2, 1), 0.5))


@pytest.mark.parametrize("name", ["cholesky", "inv", "solve", "svd", "eigh", "eig"])
def test_a_checked_form_that_succeeds_is_one_cut_and_right(name, compiles):
    program = RAISING[name][0]
    a = 2 * torch.eye(3) + 0.1
    x = a.to("xla") * 1
    with compiles() as seen:
        ours = program(x)
    assert (seen.cuts, seen.fallbacks) == (1, ())
    assert_equal(ours, program(a))


UNCHECKED = {
    "cholesky_ex": lambda a: linalg.cholesky_ex(a),
    "inv_ex": lambda a: linalg.inv_ex(a),
    "solve_ex": lambda a: linalg.solve_ex(a, a),
    "lu_factor_ex": lambda a: linalg.lu_factor_ex(a),
    "ldl_factor_ex": lambda a: linalg.ldl_factor_ex(a),
    "det": lambda a: (linalg.det(a), linalg.slogdet(a)),
    "qr": lambda a: linalg.qr(a),
    "logdet": lambda a: torch.logdet(a),
}


@pytest.mark.parametrize("name", UNCHECKED)
def test_unchecked_forms_read_nothing(name, compiles):
    x = (2 * torch.eye(3) + 0.1).to("xla") * 1
    with compiles() as seen:
        kept = UNCHECKED[name](x)
    assert (seen.cuts, seen.fallbacks) == (0, ())
    del kept


def test_backward_of_a_checked_form_reads_nothing_more(compiles):
    x = (2 * torch.eye(3) + 0.1).to("xla").requires_grad_()
    out = linalg.cholesky(x).sum() + linalg.inv(x).sum()
    with compiles() as seen:
        out.backward()
    assert seen.cuts == 0
    a = (2 * torch.eye(3) + 0.1).requires_grad_()
    (linalg.cholesky(a).sum() + linalg.inv(a).sum()).backward()
    assert_equal(x.grad, a.grad)


def test_inside_no_cuts_the_program_raises_where_it_is_read():
    bad = BAD.to("xla")
    torch_pjrt.sync()
    before = torch_pjrt.metrics.counters().get("GraphCut", 0)
    with torch_pjrt.no_cuts():
        factor, s = linalg.cholesky(bad), linalg.svdvals(bad)
    assert torch_pjrt.metrics.counters().get("GraphCut", 0) == before
    assert s.tolist() == pytest.approx([1, 1, 1])
    with pytest.raises(linalg.LinAlgError):
        factor.cpu()


def test_the_cut_is_named_and_says_what_reads_nothing(run_python):
    code = """
import torch, torch_pjrt
x = torch.eye(3, device="xla")
for _ in range(3):
    torch.linalg.cholesky(x + 1)
print([(r.kind, r.cuts) for r in torch_pjrt.explain().cuts])
"""
    done = run_python(code=code, TORCH_PJRT_CUT_WARNING="3")
    assert "('the error check of linalg.cholesky', 3)" in done.stdout, done.stderr
    assert "use torch.linalg.cholesky_ex, which reads nothing" in done.stderr, done.stderr
