"""cond, while_loop, scan and map on device xla: loops and branches inside one program."""

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as torch_map

import torch_pjrt
from torch_pjrt import _C
from torch_pjrt import _control as control

D = "xla"
F64 = torch.float64


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch_pjrt.sync()


def run(f, tensors, device, grad):
    """f's results, and gradients by all float tensors."""
    args = [t.detach().clone().to(device) for t in tensors]  # torch refuses aliases
    args = [t.requires_grad_(grad and t.is_floating_point()) for t in args]
    out = f(*args)
    out = list(out) if isinstance(out, tuple | list) else [out]
    if grad:
        sum((o * o).sum() for o in out if o.requires_grad).backward()
        out += [a.grad for a in args if a.requires_grad]
    return out


def same(f, *tensors, grad=True, compile_too=False):
    """f gives on the device what it gives on the CPU, gradients, strides and dtypes included."""
    want = run(f, tensors, "cpu", grad)
    functions = [f, torch.compile(f, backend="openxla", fullgraph=True)] if compile_too else [f]
    for g in functions:
        got = run(g, tensors, D, grad)
        assert len(got) == len(want)
        for x, y in zip(got, want, strict=True):
            assert (x is None) == (y is None)
            if x is None:
                continue
            assert x.device.type == D
            assert (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride())
            torch.testing.assert_close(x.detach().cpu(), y.detach(), rtol=1e-6, atol=1e-9)


X = torch.arange(6.0, dtype=F64).view(2, 3) / 5
ZERO = torch.zeros((), dtype=torch.int64)


def test_cond_runs_one_branch_and_has_its_gradient():
    def f(x):
        return torch.cond(x.sum() > 1, lambda a: (a.sin() * x,), lambda a: (a.cos() + 1,), (x,))

    same(f, X, compile_too=True)
    same(f, X - 3)


def test_cond_is_one_program_without_a_cut(compiles):
    x = X.to(D)

    def run_cond(shift):
        out = torch.cond((x - shift).sum() > 1, lambda a: a.sin(), lambda a: a.cos(), (x,))
        torch_pjrt.sync()
        return out

    for _ in range(2):  # the first keeps its predicate alive, in dynamo
        run_cond(0)
    with compiles() as seen:
        outs = [run_cond(shift) for shift in (0, 3)]
    assert (seen.count, seen.cuts) == (0, 0)
    torch.testing.assert_close(outs[0].cpu(), X.sin())
    torch.testing.assert_close(outs[1].cpu(), X.cos())


def test_a_branch_that_is_not_taken_does_not_run():
    x = torch.ones(3, device=D)
    out = control.branch("c", x.sum() > 9, lambda a: [a / 0], lambda a: [a + 1], [x])
    assert out[0].tolist() == [2, 2, 2]


def test_a_branch_writes_its_operand_as_eager_does():
    with torch.no_grad():
        x = torch.ones(3, device=D)
        out = torch.cond(x.sum() > 1, lambda a: a.mul_(5) + 1, lambda a: a + 2, (x,))
    assert (out.tolist(), x.tolist()) == ([6, 6, 6], [5, 5, 5])


def test_while_loop_stops_when_its_condition_says_so(compiles):
    def f(i, x):
        return while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 1.5), (i, x))

    same(f, ZERO, X, grad=False, compile_too=True)
    x, i = X.to(D), ZERO.to(D)
    with compiles() as seen:
        for start in (0, 4, 9):
            out = control.while_loop(
                "w", lambda i, v: i < 5, lambda i, v: [i + 1, v + 1], [i + start, x]
            )
            torch_pjrt.sync()
    assert (seen.count, seen.cuts) == (1, 0)
    assert out[0].item() == 9


def test_a_body_may_give_a_cpu_tensor_brought_to_the_device():
    def f(i, v):
        def body(i, v):
            return i + 1, torch.full((3,), 2.0, device="cpu").to(v.device)

        return while_loop(lambda i, v: i < 3, body, (i, v))

    same(f, torch.tensor(0), torch.zeros(3), grad=False)


def test_while_loop_has_gradients():
    def f(i, x):
        return while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, (v * 1.1).sin()), (i, x))

    same(f, ZERO, X)
    x = X.to(D).requires_grad_()
    f((ZERO + 5).to(D), x)[1].sum().backward()  # no round: torch's own gradient is of one round
    assert x.grad.tolist() == torch.ones_like(X).tolist()


def test_while_loop_may_write_what_it_does_not_carry():
    with torch.no_grad():
        seen, i = torch.zeros(3, device=D), torch.zeros((), dtype=torch.int64, device=D)

        def body(i):
            seen.add_(i)
            return (i + 1,)

        out = while_loop(lambda i: i < 4, body, (i,))
    assert (out[0].item(), seen.tolist()) == (4, [6, 6, 6])


def test_scan_carries_and_stacks_and_has_gradients():
    w = torch.linspace(-1, 1, 9, dtype=F64).view(3, 3)

    def f(h, xs, w):
        def step(h, x):
            h = torch.tanh(h @ w.t() + x)
            return h, (h * x).sin()

        return scan(step, h, xs)

    same(f, X[0], X.repeat(2, 1), w)


def test_scan_inside_torch_compile():
    def f(h, xs):
        return scan(lambda a, b: (a * 0.5 + b.sin(), (a * b).sin()), h, xs)

    same(f, X[0], X, compile_too=True)


@pytest.mark.parametrize("dim", [0, 1])
def test_scan_in_reverse_along_any_dim(dim):
    def f(h, xs):
        return scan(lambda h, x: (h * 0.5 + x, h * x), h, xs, dim=dim, reverse=True)

    same(f, X[:, 0] if dim else X[0], X)


def test_scan_of_trees_and_several_dtypes():
    def f(xs, counts):
        def step(carry, item):
            total = {"sum": carry["sum"] + item[0], "n": carry["n"] + item[1]}
            return total, (item[0] * 2, item[1] > 1, total["n"].clone())

        init = {"sum": xs[0] * 0, "n": counts[0] * 0}
        carry, outs = scan(step, init, (xs, counts))
        return carry["sum"], carry["n"], *outs

    same(f, X.float(), torch.arange(2), grad=False)


def test_a_long_scan_is_one_small_program(compiles):
    xs, h = torch.ones(500, 3, device=D), torch.zeros(3, device=D)
    with compiles() as seen:
        for _ in range(2):
            last, ys = control.scan("s", lambda h, x: [h + x, h.sin()], [h], [xs], length=500)
            torch_pjrt.sync()
    assert (seen.count, seen.cuts) == (1, 0)
    assert (last.tolist(), ys.shape) == ([500] * 3, (500, 3))
    assert torch_pjrt.graph.last().nodes < 20


def test_map_and_its_gradient():
    same(lambda x, y: torch_map(lambda v: (v.sin() * y).cumsum(0), x), X, X[0], compile_too=True)


def test_associative_scan():
    def f(x):
        return associative_scan(lambda a, b: a * b + b, x, 0, combine_mode="generic")

    same(f, torch.linspace(0.5, 2, 14, dtype=F64).view(7, 2))


def test_loops_nest():
    def f(x):
        def outer(h, row):
            inner, outs = scan(lambda a, v: (a * 0.5 + v, a * v), h.sum(), row)
            return h + inner, outs.sum() * row

        return scan(outer, x[0] * 0, x)

    same(f, X)


def test_a_random_body_draws_anew_each_round_and_its_gradient_has_the_mask():
    drop = torch.nn.functional.dropout
    x = torch.ones(4, 64, device=D, requires_grad=True)

    def body(h, v):
        return [h + 1, drop(v, 0.5)]

    torch.manual_seed(3)
    _, ys = control.scan("s", body, [torch.zeros((), device=D)], [x], length=4)
    after = torch.rand(3, device=D)
    torch.manual_seed(3)
    want = torch.stack([drop(v, 0.5) for v in x.detach()])
    assert torch.equal(ys.detach().cpu(), want.cpu())
    assert torch.equal(after.cpu(), torch.rand(3, device=D).cpu())
    ys.sum().backward()
    assert torch.equal(x.grad.cpu(), want.cpu())


def test_a_loop_is_differentiated_twice_by_the_plain_loop():
    def f(h, xs):
        def step(h, x):
            h = torch.tanh(h * x)
            return [h, h * x]

        def plain(h, xs):
            outs = []
            for x in xs:
                h, y = step(h, x)
                outs.append(y)
            return h, torch.stack(outs)

        loop = control.scan("s", step, [h], [xs], length=2) if h.device.type == D else plain(h, xs)
        first = torch.autograd.grad(sum(t.sum() for t in loop), xs, create_graph=True)[0]
        return first.sin()

    same(f, X[0], X)


def test_numbers_that_change_compile_nothing(compiles):
    xs = torch.ones(4, 3, device=D)
    with compiles() as seen:
        for i in range(4):
            rate = i / 3

            def step(h, x, rate=rate):
                return [h * rate + x]

            out = control.scan("s", step, [torch.ones(3, device=D)], [xs], length=4)
            torch_pjrt.sync()
    assert seen.count == 1
    assert out[0].tolist() == [5, 5, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_python_numbers_promote_in_a_body_as_outside(dtype):
    def f(h, xs):
        def step(h, x):
            return h * 2 + 1, (h * 1.5, x * True, torch.where(x > 1, 2.5, h))

        h, outs = scan(step, h, xs)
        return h, *outs

    same(f, torch.ones((), dtype=dtype), torch.arange(3).to(dtype), grad=False)


def test_other_bodies_are_other_programs():
    xs, h = torch.ones(4, 3, device=D), torch.ones(3, device=D)
    for step, want in ((torch.add, 5), (torch.mul, 1), (torch.sub, -3)):
        out = control.scan("s", lambda h, x, f=step: [f(h, x)], [h], [xs], length=4)
        assert out[0].tolist() == [want] * 3


def bad_read(h, x):
    return [h + x.sum().item()]


def bad_write(h, x):
    OUTER.add_(1)
    return [h + x]


def bad_host(h, x):
    return [torch.linalg.eigh(torch.diag(h + x))[0]]


OUTER = torch.zeros(3, device=D)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (bad_read, "reads a value"),
        (bad_write, "not among its arguments"),
        (bad_host, "runs on the CPU"),
        (lambda h, x: [(h + x).cpu()], "reads a value"),
    ],
)
def test_what_cannot_be_in_a_program_raises_at_its_line(step, words):
    xs, h = torch.ones(4, 3, device=D), torch.ones(3, device=D)
    with pytest.raises(RuntimeError, match=words) as raised:
        control.scan("the loop", step, [h], [xs], length=4)
    assert "the loop" in str(raised.value)
    assert "test_control_flow.py" in str(raised.value)
    assert (h + 1).tolist() == [2, 2, 2]  # the recorder is where it was


@pytest.mark.parametrize("step", [lambda h, x: [h[:2]], lambda h, x: [h.double()], lambda h, x: []])
def test_a_carried_value_keeps_its_type(step):
    xs, h = torch.ones(4, 3, device=D), torch.ones(3, device=D)
    with pytest.raises(RuntimeError, match=r"carried value 0 to stay f32\[3\]"):
        control.scan("the loop", step, [h], [xs], length=4)


def test_shapes_that_do_not_fit_raise_what_torch_raises():
    kinds = set()
    for device in ("cpu", D):
        i, x = ZERO.clone().to(device), X.clone().to(device)
        with pytest.raises(Exception) as raised:  # noqa: PT011 - compared below
            while_loop(lambda i, v: i < 5, lambda i, v: (i + 1, v[:1]), (i, x))
        kinds.add(raised.type)
    assert len(kinds) == 1


def test_a_captured_tensor_that_requires_a_gradient_is_refused():
    w = torch.ones(3, device=D, requires_grad=True)
    xs, h = torch.ones(4, 3, device=D), torch.ones(3, device=D)
    for start in (h, h.clone().requires_grad_()):
        with pytest.raises(RuntimeError, match="requires a gradient and is not among"):
            control.scan("the loop", lambda h, x: [h * w + x], [start], [xs], length=4)


def test_a_value_of_a_body_is_refused_outside():
    kept = []

    def step(h, x):
        kept.append(h * 2)
        return [h + x]

    control.scan("s", step, [torch.ones(3, device=D)], [torch.ones(4, 3, device=D)], length=4)
    for use in (kept[0].tolist, lambda: kept[0] + 1):
        with pytest.raises(RuntimeError, match="made while a function was traced"):
            use()
    assert not _C.tracing()


def test_a_loop_among_other_ops_is_part_of_their_program(compiles):
    x = torch.ones(3, device=D, requires_grad=True)
    with compiles() as seen:
        y = x * 2
        (out,) = control.scan(
            "s", lambda h, v: [h * v], [y], [torch.ones(4, 3, device=D) * 2], length=4
        )
        (out.sum() + y.sum()).backward()
        torch_pjrt.sync()
    assert (seen.count, seen.cuts) == (1, 0)
    assert x.grad.tolist() == [34, 34, 34]


def test_loops_in_eager_mode_and_in_a_captured_step():
    with torch_pjrt.eager_mode():
        x = torch.ones(3, device=D)
        (out,) = control.scan(
            "s", lambda h, v: [h + v], [x], [torch.ones(4, 3, device=D)], length=4
        )
        assert torch_pjrt.state(out) == "device"
    total = torch.zeros(3, device=D)

    @torch_pjrt.capture
    def step(xs):
        total.copy_(control.scan("s", lambda h, v: [h + v], [total], [xs], length=4)[0])

    for _ in range(5):
        step(torch.ones(4, 3, device=D))
    assert total.tolist() == [20, 20, 20]
