"""In-place and out= forms: eager's casts, resizes, warnings and errors, for every kind of op."""

import warnings

import pytest
import torch
from eager import assert_equal, check, check_error, layout, moved, outcome

import torch_pjrt


def a() -> torch.Tensor:
    return torch.tensor([[1.5, -2.0, 3.0], [0.5, 4.0, -6.0]])


def b() -> torch.Tensor:
    return torch.tensor([[2.0, 1.0, -1.0], [0.25, 2.0, 3.0]])


INPLACE = {
    "add_": lambda x, y: x.add_(y),
    "add_alpha": lambda x, y: x.add_(y, alpha=3),
    "add_number": lambda x, y: x.add_(2.5),
    "add_0d": lambda x, y: x.add_(y[0, 0]),
    "iadd": lambda x, y: x.__iadd__(y),
    "sub_": lambda x, y: x.sub_(y),
    "mul_": lambda x, y: x.mul_(y),
    "mul_broadcast": lambda x, y: x.mul_(y[0]),
    "div_": lambda x, y: x.div_(y),
    "div_floor": lambda x, y: x.div_(y, rounding_mode="floor"),
    "pow_": lambda x, y: x.pow_(2),
    "neg_": lambda x, y: x.neg_(),
    "abs_": lambda x, y: x.abs_(),
    "exp_": lambda x, y: x.exp_(),
    "sigmoid_": lambda x, y: x.sigmoid_(),
    "tanh_": lambda x, y: x.tanh_(),
    "relu_": lambda x, y: torch.relu_(x),
    "leaky_relu_": lambda x, y: torch.nn.functional.leaky_relu_(x, 0.1),
    "clamp_": lambda x, y: x.clamp_(-1, 2),
    "clamp_min_": lambda x, y: x.clamp_min_(0),
    "sqrt_abs": lambda x, y: x.abs_().sqrt_(),
    "floor_": lambda x, y: x.floor_(),
    "sign_": lambda x, y: x.sign_(),
    "zero_": lambda x, y: x.zero_(),
    "fill_": lambda x, y: x.fill_(3.5),
    "fill_tensor": lambda x, y: x.fill_(y.sum()),
    "copy_": lambda x, y: x.copy_(y),
    "copy_broadcast": lambda x, y: x.copy_(y[1]),
    "copy_cast": lambda x, y: x.copy_(y.to(torch.int64)),
    "lerp_": lambda x, y: x.lerp_(y, 0.25),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.5),
    "addcdiv_": lambda x, y: x.addcdiv_(y, y + 10, value=2),
    "addmm_": lambda x, y: x.addmm_(y, torch.eye(3, device=x.device), beta=2, alpha=0.5),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 1, -1),
    "index_fill_": lambda x, y: x.index_fill_(1, torch.tensor([0, 2], device=x.device), 9),
    "index_add_": lambda x, y: x.index_add_(0, torch.tensor([1, 1], device=x.device), y),
    "scatter_": lambda x, y: x.scatter_(1, torch.tensor([[2, 0, 1]], device=x.device), y),
    "scatter_add_": lambda x, y: x.scatter_add_(1, torch.tensor([[2, 2, 1]], device=x.device), y),
    "index_put_": lambda x, y: x.index_put_((torch.tensor([1], device=x.device),), y[0]),
    "triu_": lambda x, y: x.triu_(1),
    "tril_": lambda x, y: x.tril_(),
    "t_": lambda x, y: x.t_(),
    "transpose_": lambda x, y: x.transpose_(0, 1),
    "unsqueeze_": lambda x, y: x.unsqueeze_(1),
    "squeeze_": lambda x, y: x.unsqueeze_(0).squeeze_(0),
    "eq_": lambda x, y: x.eq_(y),
    "gt_": lambda x, y: x.gt_(0),
    "logical_not_": lambda x, y: x.logical_not_(),
    "cumsum_": lambda x, y: x.cumsum_(1),
}


@pytest.mark.parametrize("op", INPLACE.values(), ids=INPLACE.keys())
def test_in_place_form_gives_eagers_value_and_itself(op):
    def program(x, y):
        back = op(x, y)
        assert back is x
        return x, y

    check(program, a(), b())


@pytest.mark.parametrize(
    "op", [k for k in INPLACE if not k.endswith(("t_", "squeeze_", "transpose_"))]
)
def test_in_place_form_through_a_view_after_a_sync(op):
    def program(x, y):
        v = x.t()[:, :2].t()
        torch_pjrt.sync()
        INPLACE[op](v, y)
        return x, v

    check(program, torch.cat([a(), a()]), b())


# x dtype, y dtype: in-place results are cast to x's dtype, or eager's error comes.
CASTS = [
    (torch.float32, torch.float64),
    (torch.float32, torch.int64),
    (torch.float64, torch.float32),
    (torch.bfloat16, torch.float32),
    (torch.float16, torch.int32),
    (torch.int64, torch.int32),
    (torch.int32, torch.int64),
    (torch.int32, torch.bool),
    (torch.uint8, torch.int64),
    (torch.complex64, torch.float64),
    (torch.int64, torch.float32),
    (torch.bool, torch.int64),
    (torch.float32, torch.complex64),
    (torch.bool, torch.bool),
]


@pytest.mark.parametrize(("to", "other"), CASTS, ids=str)
def test_in_place_add_casts_as_eager_does(to, other):
    x, y = torch.tensor([1, 2, 0]).to(to), torch.tensor([3, 1, 1]).to(other)
    ours, theirs = moved([x, y])
    _, eager, _ = outcome(lambda: x.add_(y))
    _, error, _ = outcome(lambda: ours.add_(theirs))
    assert type(error) is type(eager), error
    if eager:
        assert str(error).splitlines()[0] == str(eager).splitlines()[0]
    assert_equal(ours, x, exact=True)


def test_in_place_on_itself():
    check(lambda x: (x.add_(x), x.mul_(x.t().t()), x.sub_(x[0].clone())), a())


def test_in_place_reads_old_value_of_an_overlapping_view():
    check(lambda x: (x[0].copy_(x[1]), x[1:].add_(x[:1]), x), a(), exact=True)


def test_old_value_held_elsewhere_stays():
    def program(x):
        old = x * 1
        kept = x.clone()
        x.add_(1)
        torch_pjrt.sync()
        x.mul_(2)
        return old, kept, x

    check(program, a(), exact=True)


def test_version_counts_as_in_eager(device):
    def program(x):
        v = x[0]
        x.add_(1)
        v.mul_(2)
        x.detach().zero_()
        x.data.zero_()
        return x._version, v._version

    assert program(a().to(device) + 0) == program(a() + 0)


# ---- out= -----------------------------------------------------------------------------------


OUT = {
    "add": lambda x, y, out: torch.add(x, y, out=out),
    "mul_number": lambda x, y, out: torch.mul(x, 2, out=out),
    "sum": lambda x, y, out: torch.sum(x, 1, out=out),
    "mm": lambda x, y, out: torch.mm(x, y.t(), out=out),
    "matmul": lambda x, y, out: torch.matmul(x, y[0], out=out),
    "cat": lambda x, y, out: torch.cat([x, y], 0, out=out),
    "stack": lambda x, y, out: torch.stack([x, y], out=out),
    "exp": lambda x, y, out: torch.exp(x, out=out),
    "argmax": lambda x, y, out: torch.argmax(x, 1, out=out),
    "eq": lambda x, y, out: torch.eq(x, y, out=out),
    "gather": lambda x, y, out: torch.gather(x, 1, (y > 1).long(), out=out),
    "index_select": lambda x, y, out: torch.index_select(x, 1, (y[0] > 1).long(), out=out),
    "where": lambda x, y, out: torch.where(x > y, x, y, out=out),
    "clamp": lambda x, y, out: torch.clamp(x, 0, 1, out=out),
    "cumsum": lambda x, y, out: torch.cumsum(x, 1, out=out),
    "softmax": lambda x, y, out: torch.softmax(x, 1, out=out),
    "tril": lambda x, y, out: torch.tril(x, out=out),
    "arange": lambda x, y, out: torch.arange(6, out=out),
    "full": lambda x, y, out: torch.full((2, 2), 3.0, out=out),
    "zeros": lambda x, y, out: torch.zeros(3, 2, out=out),
    "eye": lambda x, y, out: torch.eye(3, out=out),
}


def out_of(name: str, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    back = OUT[name](x, y, out)
    assert back is out
    return out


@pytest.mark.parametrize("name", OUT)
def test_out_of_the_right_shape_is_written(name):
    shaped = torch.empty_like(OUT[name](a(), b(), torch.empty(0)) if name not in ("argmax", "eq")
                              else OUT[name](a(), b(), None))  # fmt: skip
    check(lambda x, y, o: (out_of(name, x, y, o), x, y), a(), b(), shaped.fill_(0))


@pytest.mark.parametrize("name", OUT)
def test_empty_out_is_resized_without_a_warning(name):
    x, y = a(), b()
    dtype = {"argmax": torch.int64, "eq": torch.bool}.get(name, torch.float32)
    eager, _, said = outcome(out_of, name, x, y, torch.empty(0, dtype=dtype))
    ours, error, we_said = outcome(out_of, name, *moved([x, y, torch.empty(0, dtype=dtype)]))
    assert error is None
    assert layout(ours) == layout(eager)
    assert_equal(ours, eager)
    assert said == we_said == []


def test_resizing_a_full_out_warns_as_eager_does():
    x, y = a(), b()
    eager, _, said = outcome(lambda: torch.add(x, y, out=torch.ones(5)))
    xx, yy, out = moved([x, y, torch.ones(5)])
    ours, error, we_said = outcome(lambda: torch.add(xx, yy, out=out))
    assert error is None
    assert_equal([ours, out], [eager, eager])
    assert len(we_said) == len(said) == 1
    assert we_said[0].split("(Trigg")[0] == said[0].split("(Trigg")[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64], ids=str)
def test_out_of_another_dtype_is_cast(dtype):
    check(lambda x, y, o: torch.add(x, y, out=o), a(), b(), torch.zeros(2, 3, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool], ids=str)
def test_out_that_cannot_hold_the_result_raises(dtype):
    check_error(lambda x, y, o: torch.add(x, y, out=o), a(), b(), torch.zeros(2, 3, dtype=dtype))


def test_out_through_a_view_reaches_the_base():
    def program(x, y, o):
        torch.add(x, y, out=o.t()[1:3])
        return o

    check(program, a(), b(), torch.zeros(3, 4), exact=True)


def test_out_keeps_its_strides():
    check(lambda x, y, o: torch.mul(x, y, out=o), a(), b(), torch.zeros(3, 2).t())


def test_out_that_is_an_input():
    check(lambda x, y: torch.add(x, y, out=x), a(), b(), exact=True)


def test_two_outs():
    def program(x):
        v, i = torch.zeros(2, device=x.device), torch.zeros(2, dtype=torch.int64, device=x.device)
        back = torch.max(x, 1, out=(v, i))
        assert back[0] is v
        return v, i

    check(program, a())


def test_out_that_requires_grad_raises():
    x = a().requires_grad_()
    check_error(lambda x, o: torch.add(x, x, out=o), x, torch.zeros(2, 3))


def test_out_on_the_cpu_raises(device):
    x = a().to(device)
    with pytest.raises(RuntimeError):
        torch.add(x, x, out=torch.zeros(2, 3))


OVERLAPS = {
    "add_": lambda x: x[1:].add_(x[:-1]),
    "add_alpha": lambda x: x[1:].add_(x[:-1], alpha=2),
    "mul_": lambda x: x[:4].mul_(x[2:]),
    "square transposed": lambda x: x[:4].view(2, 2).add_(x[:4].view(2, 2).t()),
    "copy_": lambda x: x[1:].copy_(x[:-1]),
    "lerp_": lambda x: x[1:].lerp_(x[:-1], 0.5),
    "out=": lambda x: torch.add(x[:-1], 1, out=x[1:]),
    "unary out=": lambda x: torch.sin(x[:-1], out=x[1:]),
    "scan out=": lambda x: torch.cumsum(x[:-1], 0, out=x[1:]),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_writing_memory_that_is_partly_read_raises_as_eager(name):
    check_error(OVERLAPS[name], torch.arange(6.0))


def test_writing_the_very_window_that_is_read_is_fine():
    check(lambda x: torch.cumsum(x[1:5], 0, out=x[1:5]), torch.arange(6.0))


WRONG_DTYPES = {
    "mm": lambda x, out: torch.mm(x, x, out=out),
    "bmm": lambda x, out: torch.bmm(x[None], x[None], out=out[None]),
    "softmax": lambda x, out: torch.softmax(x, 0, out=out),
    "triu": lambda x, out: torch.triu(x, out=out),
    "gather": lambda x, out: torch.gather(x, 0, torch.zeros_like(x, dtype=torch.int64), out=out),
    "argmax": lambda x, out: torch.argmax(x, 0, out=out[0]),
}


@pytest.mark.parametrize("name", WRONG_DTYPES)
def test_out_of_another_dtype_raises_where_eager_does_not_cast(name):
    check_error(WRONG_DTYPES[name], torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.float64))


CASTS = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out[0]),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "cat": lambda x, out: torch.cat([x[:1], x[1:]], out=out),
}


@pytest.mark.parametrize("name", CASTS)
def test_out_of_another_dtype_is_cast_where_eager_casts(name):
    check(CASTS[name], torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.float64))


NUMBERS = {
    "fill_": lambda x: x.fill_(1e100),
    "fill_ s8": lambda x: x.to(torch.int8).fill_(300),
    "full": lambda x: torch.full((2,), 300, dtype=torch.int8, device=x.device),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1e100),
    "masked_fill_ s8": lambda x: x.to(torch.int8).masked_fill_(x > 0, 300),
    "clamp": lambda x: x.clamp(max=1e100),
    "alpha": lambda x: torch.sub(x.to(torch.int8), x.to(torch.int8), alpha=300),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=1e100),
    "scatter": lambda x: x.scatter(0, torch.zeros(1, dtype=torch.int64, device=x.device), 1e100),
    "threshold": lambda x: torch.threshold(x, 0.5, 1e100),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1), value=1e100),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_the_dtype_cannot_hold_raises_at_every_call(name):
    for _ in range(2):  # the second call finds the result's type in the cache
        check_error(NUMBERS[name], torch.ones(3))


def test_numbers_that_eager_lets_overflow_overflow():
    check(lambda x: [x + 1e100, x.to(torch.int8) * 300, x.fill_(float("inf"))], torch.ones(3))


def test_out_lists_are_filled():
    def program(x):
        outs = [torch.empty(0, device=x.device) for _ in range(2)]
        torch.split_with_sizes_copy(x, [1, 2], out=outs)
        torch.unbind_copy(x[:2], out=outs)
        return outs

    check(program, torch.arange(3.0))


def test_conj_physical_writes_in_place_and_out():
    def program(x):
        return [torch.conj_physical(x, out=torch.empty_like(x)), x.conj_physical_()]

    check(program, torch.tensor([1 + 2j, 3 - 4j]))


def test_factories_with_out_record_no_cut():
    def program(x):
        outs = [torch.empty(0, dtype=t, device=x.device) for t in (torch.float64, torch.int32)]
        torch.arange(1, 9, 2, out=outs[0])
        torch.eye(2, 3, out=outs[1])
        more = [torch.linspace(0, 1, 5, out=torch.empty(5, device=x.device))]
        more.append(torch.arange(5, out=torch.empty(5, dtype=torch.float16, device=x.device)))
        return outs + more

    torch_pjrt.metrics.clear()
    check(program, torch.zeros(1))
    assert not [k for k in torch_pjrt.metrics.counters() if k.startswith("aten::")]


# ---- reductions compute in the dtype of out= ----------------------------------------------------


@pytest.mark.parametrize("op", ["sum", "prod", "cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float64])
def test_reduction_computes_in_outs_dtype(op, dtype):
    x = torch.tensor([[1.5, 2.5, 0.5], [1.0, 3.9, 2.0]])
    want, got = torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype, device="xla")
    getattr(torch, op)(x, 1, out=want)
    getattr(torch, op)(x.to("xla"), 1, out=got)
    assert_equal(got, want)


@pytest.mark.parametrize("shape", [(6,), (2, 3), (3, 1, 2), (4,)])
def test_arange_fills_out_and_keeps_its_shape(shape):
    want, got = torch.zeros(shape), torch.zeros(shape, device="xla")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of resizing
        torch.arange(6, out=want)
        torch.arange(6, out=got)
    assert_equal(got, want)


REFUSED = {
    "dot": lambda x, out: torch.dot(x[0], x[1], out=out),
    "kthvalue": lambda x, out: torch.kthvalue(x, 1, out=(out, x.long().new_empty(0))),
    "mode": lambda x, out: torch.mode(x, 1, out=(out, x.long().new_empty(0))),
    "vector_norm": lambda x, out: torch.linalg.vector_norm(x, out=out),
    "clamp": lambda x, out: torch.clamp(x, 0, 1, out=out),
    "signbit": lambda x, out: torch.signbit(x, out=out),
    "searchsorted": lambda x, out: torch.searchsorted(x, x, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 1, dtype=torch.float32, out=out),
    "all": lambda x, out: torch.all(x, 1, out=out),
    "complex": lambda x, out: torch.complex(x, x, out=out.to(torch.complex128)),
    "polar": lambda x, out: torch.polar(x, x, out=out.to(torch.complex128)),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
def test_out_of_another_dtype_is_refused_as_eager_does(call):
    for device in ("cpu", "xla"):
        out = torch.empty(0, dtype=torch.float64, device=device)
        with pytest.raises(RuntimeError):
            call(torch.ones(2, 3, device=device), out)


def test_cat_into_integers_is_a_type_error():
    for device in ("cpu", "xla"):
        out = torch.empty(0, dtype=torch.int64, device=device)
        with pytest.raises(TypeError, match="input types can't be cast"):
            torch.cat([torch.ones(2, device=device)], out=out)


ALIASED = {
    "gather": lambda x: torch.gather(x, 0, torch.zeros_like(x).long(), out=x),
    "take": lambda x: torch.take(x, torch.zeros_like(x).long(), out=x),
    "cat": lambda x: torch.cat([x, x[:0]], out=x),
    "index_select": lambda x: torch.index_select(x, 0, torch.zeros_like(x[:, 0]).long(), out=x),
    "kthvalue": lambda x: torch.kthvalue(x[0], 1, 0, True, out=(x[0], x.new_empty(0).long())),
}


@pytest.mark.parametrize("call", ALIASED.values(), ids=ALIASED.keys())
def test_out_that_is_read_meanwhile_is_refused(call):
    check_error(call, torch.ones(2, 3))


# Resized before or after eager looks whether it overlaps itself; laid out as the op likes, or not.
EXPANDED = {
    "add": lambda x, o: torch.add(x, x, out=o),
    "sin": lambda x, o: torch.sin(x, out=o),
    "where": lambda x, o: torch.where(x > 0, x, x, out=o),
    "mean": lambda x, o: torch.mean(x, 0, out=o),
    "mean of no dims": lambda x, o: torch.mean(x[0, 0], 0, out=o),
    "cumsum": lambda x, o: torch.cumsum(x, 0, out=o),
    "mm": lambda x, o: torch.mm(x, x.t(), out=o),
    "cat": lambda x, o: torch.cat([x, x], out=o),
    "index_select": lambda x, o: torch.index_select(
        x, 0, torch.zeros(1, dtype=torch.int64, device=x.device), out=o),
    "gather": lambda x, o: torch.gather(x, 0, torch.zeros_like(x, dtype=torch.int64), out=o),
    "cholesky": lambda x, o: torch.cholesky(torch.eye(3, device=x.device), out=o),
    "transposed sum": lambda x, o: torch.sub(x.t(), 1, out=o),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", EXPANDED.values(), ids=EXPANDED.keys())
@pytest.mark.parametrize("make", [lambda: torch.zeros(1).expand(7), lambda: torch.empty(0)],
                         ids=["expanded", "empty"])  # fmt: skip
def test_out_that_is_resized_is_checked_and_laid_out_as_in_eager(program, make):
    x, o = a(), make()
    dx, do = moved(x), torch.zeros(1, device="xla").expand(7) if o.numel() else moved(o)
    _, error, _ = outcome(program, x, o)
    _, ours, _ = outcome(program, dx, do)
    assert type(ours) is type(error)
    if error is None:
        assert layout(do) == layout(o)
        assert_equal(do, o)
