"""Bad calls raise eager's exception at the faulty line: type and first line; then op and line."""

import re

import numpy as np
import pytest
import torch
from eager import check as check_equal
from eager import check_error, moved, outcome

import torch_pjrt

F = torch.nn.functional


def f(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


def i(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.int64)


def d(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float64)


def c(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.complex64)


def b(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bool)


# name: (program, arguments)
BAD = {
    # shapes
    "add": (lambda x, y: x + y, f(2, 3), f(4)),
    "mul": (lambda x, y: x * y, f(2, 3), f(2, 2)),
    "add_ grows": (lambda x, y: x.add_(y), f(2), f(3, 2)),
    "mm": (lambda x, y: x @ y, f(2, 3), f(2, 3)),
    "mm of a vector": (lambda x, y: torch.mm(x, y), f(2, 3), f(3)),
    "bmm": (lambda x, y: torch.bmm(x, y), f(2, 3, 4), f(2, 3, 4)),
    "mv": (lambda x, y: torch.mv(x, y), f(2, 3), f(2)),
    "dot": (lambda x, y: torch.dot(x, y), f(3), f(4)),
    "addmm bias": (lambda x, y: torch.addmm(x, y, y.t()), f(5), f(2, 3)),
    "linear": (lambda x, y: F.linear(x, y), f(2, 3), f(4, 5)),
    "cat": (lambda x, y: torch.cat([x, y]), f(2, 3), f(2, 4)),
    "cat ranks": (lambda x, y: torch.cat([x, y]), f(2, 3), f(2)),
    "stack": (lambda x, y: torch.stack([x, y]), f(2, 3), f(2, 4)),
    "view": (lambda x: x.view(4, 2), f(2, 3)),
    "view two unknowns": (lambda x: x.view(-1, -1), f(2, 3)),
    "view strides": (lambda x: x.t().view(6), f(2, 3)),
    "reshape": (lambda x: x.reshape(5), f(2, 3)),
    "expand": (lambda x: x.expand(4, 3), f(2, 3)),
    "expand fewer": (lambda x: x.expand(3), f(2, 3)),
    "unflatten": (lambda x: x.unflatten(1, (2, 2)), f(2, 3)),
    "index": (lambda x: x[5], f(2, 3)),
    "index negative": (lambda x: x[:, -4], f(2, 3)),
    "too many indices": (lambda x: x[0, 0, 0], f(2, 3)),
    "index shapes": (lambda x, y, z: x[y, z], f(2, 3), i(2), i(3)),
    "mask shape": (lambda x, y: x[y], f(2, 3), b(3, 2)),
    "select": (lambda x: x.select(0, 9), f(2, 3)),
    "narrow": (lambda x: x.narrow(1, 2, 2), f(2, 3)),
    "split sizes": (lambda x: x.split([1, 1], 1), f(2, 3)),
    "as_strided ranks": (lambda x: x.as_strided((2, 2), (1,)), f(2, 3)),
    "copy_": (lambda x, y: x.copy_(y), f(2, 3), f(2, 2)),
    "setitem": (lambda x, y: x.__setitem__(0, y), f(2, 3), f(2)),
    "where": (lambda x, y: torch.where(x > 0, x, y), f(2, 3), f(4)),
    "gather": (lambda x, y: x.gather(0, y), f(2, 3), i(3, 4)),
    "index_select rank": (lambda x, y: x.index_select(0, y), f(2, 3), i(1, 1)),
    "scatter_": (lambda x, y, z: x.scatter_(0, y, z), f(2, 3), i(3, 3), f(2, 2)),
    "conv2d channels": (lambda x, y: F.conv2d(x, y), f(1, 3, 8, 8), f(4, 2, 3, 3)),
    "conv2d kernel": (lambda x, y: F.conv2d(x, y), f(1, 3, 2, 2), f(4, 3, 3, 3)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 5), f(1, 1, 2, 2)),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), f(2, 3)),
    "batch_norm": (lambda x, y: F.batch_norm(x, y, y), f(2, 3), f(4)),
    "group_norm": (lambda x: F.group_norm(x, 2), f(2, 3)),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y), f(2, 3), i(4)),
    "nll_loss": (lambda x, y: F.nll_loss(x, y), f(2, 3), i(4)),
    "mse_loss": (lambda x, y: F.mse_loss(x, y), f(2, 3), f(4)),
    "unfold": (lambda x: x.unfold(0, 5, 1), f(2, 3)),
    "diagonal of a vector": (lambda x: x.diagonal(), f(3)),
    "t of 3d": (lambda x: x.t(), f(1, 2, 3)),
    "permute": (lambda x: x.permute(0), f(2, 3)),
    "permute twice": (lambda x: x.permute(0, 0), f(2, 3)),
    "flip": (lambda x: x.flip(0, 0), f(2, 3)),
    "pad": (lambda x: F.pad(x, (-2, -2)), f(2, 3)),
    "tril of a vector": (lambda x: x.tril(), f(3)),
    "item": (lambda x: x.item(), f(2, 3)),
    "bool": (lambda x: bool(x), f(2, 3)),
    "len of 0-d": (lambda x: len(x), f()),
    "iterate 0-d": (lambda x: list(x), f()),
    # dimensions
    "sum dim": (lambda x: x.sum(2), f(2, 3)),
    "sum dim negative": (lambda x: x.sum(-3), f(2, 3)),
    "sum twice": (lambda x: x.sum((0, 0)), f(2, 3)),
    "transpose dim": (lambda x: x.transpose(0, 2), f(2, 3)),
    "unsqueeze dim": (lambda x: x.unsqueeze(4), f(2, 3)),
    "softmax dim": (lambda x: x.softmax(2), f(2, 3)),
    "cumsum dim": (lambda x: x.cumsum(2), f(2, 3)),
    "max dim": (lambda x: x.max(2), f(2, 3)),
    "argmax dim": (lambda x: x.argmax(3), f(2, 3)),
    "sort dim": (lambda x: x.sort(2), f(2, 3)),
    "topk k": (lambda x: x.topk(4), f(2, 3)),
    "topk dim": (lambda x: x.topk(1, 2), f(2, 3)),
    "gather dim": (lambda x, y: x.gather(2, y), f(2, 3), i(2, 3)),
    "slice step": (lambda x: x[::0], f(2, 3)),
    "slice backwards": (lambda x: x[::-1], f(2, 3)),
    "chunk": (lambda x: x.chunk(0), f(2, 3)),
    "max of empty": (lambda x: x.max(), f(0)),
    "argmax of empty": (lambda x: x.argmax(), f(0, 3)),
    "amax of empty": (lambda x: x.amax(0), f(0, 3)),
    # dtypes
    "mm float double": (lambda x, y: x @ y, f(2, 3), d(3, 2)),
    "bmm float double": (lambda x, y: torch.bmm(x, y), f(1, 2, 3), d(1, 3, 2)),
    "linear dtypes": (lambda x, y: F.linear(x, y), f(2, 3), d(4, 3)),
    "addmm dtypes": (lambda x, y: torch.addmm(x, y, y.t()), d(2, 2), f(2, 3)),
    "dot dtypes": (lambda x, y: torch.dot(x, y), f(3), d(3)),
    "conv2d dtypes": (lambda x, y: F.conv2d(x, y), f(1, 1, 4, 4), d(1, 1, 2, 2)),
    "int add_ float": (lambda x: x.add_(1.5), i(2)),
    "int mul_ float": (lambda x: x.mul_(1.5), i(2)),
    "int div_": (lambda x: x.div_(2), i(2)),
    "int add_ float tensor": (lambda x, y: x.add_(y), i(2), f(2)),
    "bool add_ float": (lambda x: x.add_(1.0), b(2)),
    "int alpha": (lambda x: torch.add(x, x, alpha=1.5), i(2)),
    "bool sub": (lambda x: x - x, b(2)),
    "bool neg": (lambda x: -x, b(2)),
    "relu bool": (lambda x: x.relu(), b(2)),
    "mse_loss int": (lambda x: F.mse_loss(x, x), i(2)),
    "log_softmax int": (lambda x: F.log_softmax(x, 0), i(2)),
    "softmax int": (lambda x: x.softmax(0), i(2)),
    "mean int": (lambda x: x.mean(), i(2)),
    "sigmoid_ int": (lambda x: x.sigmoid_(), i(2)),
    "and float": (lambda x: x & x, f(2)),
    "shift float": (lambda x: x << 1, f(2)),
    "invert float": (lambda x: ~x, f(2)),
    "gather index dtype": (lambda x, y: x.gather(0, y), f(2), f(2)),
    "index_select dtype": (lambda x, y: x.index_select(0, y), f(2), f(2)),
    "index dtype": (lambda x, y: x[y], f(2), f(2)),
    "embedding dtype": (lambda x, y: F.embedding(y, x), f(2, 3), f(2)),
    "masked_fill mask": (lambda x, y: x.masked_fill(y, 0), f(2), f(2)),
    "where condition": (lambda x: torch.where(x, x, x), f(2)),
    "lerp dtypes": (lambda x, y: x.lerp(y, 0.5), f(2), d(2)),
    "cross_entropy target dtype": (
        lambda x, y: F.cross_entropy(x, y), f(2, 3), torch.ones(2, dtype=torch.int32)
    ),
    "view dtype": (lambda x: x.view(torch.float64), f(2, 3)),
    "view_as_complex": (lambda x: torch.view_as_complex(x), f(2, 3)),
    "float to complex fill": (lambda x: x.fill_(1j), f(2)),
    "scatter_add dtypes": (lambda x, y: x.scatter_add_(0, i(2).to(x.device), y), f(2), d(2)),
    "index_add dtypes": (lambda x, y: x.index_add_(0, i(2).to(x.device), y), f(2), d(2)),
    "index_put dtypes": (lambda x, y: x.index_put_((i(2).to(x.device),), y), f(2), d(2)),
    "normal_ int": (lambda x: x.normal_(), i(2)),
    "uniform_ int": (lambda x: x.uniform_(), i(2)),
    # dtypes without a kernel of eager's: some of these would stop the compiler, and the process
    "mv of bools": (lambda x, y: torch.mv(x, y), b(3, 4), b(4)),
    "addmv of bools": (lambda x, y, z: torch.addmv(x, y, z), b(3), b(3, 4), b(4)),
    "addmm of bools": (lambda x: torch.addmm(x, x, x), b(3, 3)),
    "dot of bools": (lambda x: torch.dot(x, x), b(4)),
    "floor of a bool quotient": (lambda x: torch.div(x, x, rounding_mode="floor"), b(3)),
    "floor of a complex quotient": (lambda x: torch.div(x, x, rounding_mode="floor"), c(3)),
    "relu of complex numbers": (lambda x: F.relu(x), c(3)),
    "hardtanh of complex numbers": (lambda x: F.hardtanh(x), c(3)),
    "avg_pool2d of integers": (lambda x: F.avg_pool2d(x, 2), i(1, 4, 4).int()),
    "max_pool2d of bools": (lambda x: F.max_pool2d(x, 2), b(1, 4, 4)),
    "conv_transpose2d of integers": (lambda x: F.conv_transpose2d(x, x), i(1, 1, 2, 2).int()),
    "reflection_pad1d of bools": (lambda x: F.pad(x, (1, 1), mode="reflect"), b(1, 4)),
    "linear interpolation of integers": (
        lambda x: F.interpolate(x, scale_factor=2, mode="linear"), i(1, 2, 4)),
    "unfold of integers": (lambda x: F.unfold(x, 2), i(1, 1, 4, 4)),
    "scatter_reduce mean of bools": (
        lambda x, y: x.scatter_reduce(0, y, x, "mean"), b(3), i(3) - 1),
    "scatter_reduce amax of complex": (
        lambda x, y: x.scatter_reduce(0, y, x, "amax"), c(3), i(3) - 1),
    "nll_loss of integers": (lambda x, y: F.nll_loss(x, y), i(2, 3), i(2)),
    "renorm of integers": (lambda x: torch.renorm(x, 2, 0, 1), i(2, 3)),
    "cumsum into bools": (lambda x: x.cumsum(0, dtype=torch.bool), f(3)),
    "geometric_ of bools": (lambda x: x.geometric_(0.5), b(3)),
    "trace of bools, not a matrix": (lambda x: x.trace(), b(2, 3, 4)),
    "index_reduce of bools": (lambda x, y: x.index_reduce(0, y, x, "amax"), b(3), i(3) - 1),
    "index_reduce of complex": (lambda x, y: x.index_reduce(0, y, x, "prod"), c(3), i(3) - 1),
    "rrelu of halves in training": (lambda x: F.rrelu(x, training=True), f(3).half()),
    "multinomial into doubles": (
        lambda x, o: torch.multinomial(x, 2, out=o), f(3).abs(), f(2).double()),
    "unbind_copy of a number": (lambda x: torch.unbind_copy(x), f()),
    # nothing to choose from
    "kthvalue of nothing": (lambda x: x.kthvalue(1), f(0)),
    "kthvalue of rows of nothing": (lambda x: x.kthvalue(1, 1), f(3, 0)),
    "median of nothing": (lambda x: x.median(0), f(0, 3)),
    "nanmedian of nothing": (lambda x: x.nanmedian(-1), f(3, 0)),
    "mode of nothing": (lambda x: x.mode(0), i(0)),
    "norm of nothing": (lambda x: torch.norm(x, -1), f(0)),
    "inf norm of rows of nothing": (lambda x: torch.norm(x, float("inf"), 1), f(3, 0)),
    "renorm dim of nothing": (lambda x: x.renorm(2, 2, 1), f(0, 3)),
    # values
    "uniform range": (lambda x: x.uniform_(2, 1), f(2)),
    "normal std": (lambda x: x.normal_(0, -1), f(2)),
    "dropout p": (lambda x: F.dropout(x, 1.5), f(2)),
    "bernoulli p": (lambda x: x.bernoulli_(2.0), f(2)),
    "arange step": (lambda x: torch.arange(0, 5, -1, device=x.device), f(1)),
    "clamp nothing": (lambda x: x.clamp(), f(2)),
    "negative size": (lambda x: torch.empty(-1, device=x.device), f(1)),
    "full negative": (lambda x: x.new_full((2, -3), 1.0), f(1)),
    # autograd
    "leaf in-place": (lambda x: x.add_(1), f(2).requires_grad_()),
    "view of leaf in-place": (lambda x: x[0].add_(1), f(2).requires_grad_()),
    "backward twice": (lambda x: [y := (x * x).sum(), y.backward(), y.backward()],
                       f(2).requires_grad_()),
    "backward of a vector": (lambda x: (x * x).backward(), f(2).requires_grad_()),
    "backward without graph": (lambda x: x.sum().backward(), f(2)),
    "saved and changed": (lambda x: [y := x * 1, z := y * y, y.add_(1), z.sum().backward()],
                          f(2).requires_grad_()),
    "int requires grad": (lambda x: x.requires_grad_(), i(2)),
    "grad of other shape": (lambda x, y: setattr(x, "grad", y), f(2), f(3)),
}  # fmt: skip


def test_narrow_copy_past_the_last_dim_is_a_runtime_error_as_in_eager():
    for x in (f(3), f(3).to("xla")):
        with pytest.raises(RuntimeError, match="Expected dim <"):
            torch.narrow_copy(x, 1, 0, 1)
        with pytest.raises(IndexError):
            torch.narrow_copy(x, -2, 0, 1)


@pytest.mark.parametrize("name", BAD)
def test_bad_call_raises_eagers_exception(name):
    program, *args = BAD[name]
    args = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
    check_error(program, *args)


@pytest.mark.parametrize("name", BAD)
def test_message_is_not_a_cpp_stack(name):
    program, *args = BAD[name]
    args = [a.detach().to("xla").requires_grad_(a.requires_grad) for a in args]
    _, error, _ = outcome(program, *args)
    for unwanted in ("Exception raised from", "C++ stack", "frame #", "c10::"):
        assert unwanted not in str(error)


NAMED = {
    "add": (lambda x: x + torch.ones(4, device=x.device), "aten::add", "f32[2,3]"),
    "mm": (lambda x: torch.mm(x, x), "aten::mm", "f32[2,3]"),
    "sum": (lambda x: x.sum(7), "aten::sum", "f32[2,3]"),
    "cat": (lambda x: torch.cat([x, x.t()]), "aten::cat", "f32[3,2]"),
    "in-place": (lambda x: x.to(torch.int64).add_(1.5), "aten::add", "s64[2,3]"),
    "out": (lambda x: torch.add(x, x, out=x.long()), "aten::add", "f32[2,3]"),
}


@pytest.mark.parametrize(("program", "op", "shape"), NAMED.values(), ids=NAMED.keys())
def test_message_names_op_shapes_and_the_users_line(program, op, shape):
    _, error, _ = outcome(program, torch.ones(2, 3, device="xla"))
    assert op in str(error)
    assert shape in str(error)
    assert re.search(r"called at test_errors\.py:\d+ in <lambda>", str(error))


def test_error_of_a_backward_op_is_eagers():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g + torch.ones(7, device=g.device)

    check_error(lambda x: Wrong.apply(x).sum().backward(), f(3).requires_grad_())


def test_failed_calls_change_nothing(device):
    x = torch.ones(2, 3, device=device)
    y = x * 2
    before = torch_pjrt.graph.of([y]).text
    for program, *_ in NAMED.values():
        outcome(program, y)
    assert torch_pjrt.graph.of([y]).text == before
    assert y.tolist() == [[2] * 3] * 2


# ---- mixed devices --------------------------------------------------------------------------


MIXED = {
    "add": lambda x, c: x + c,
    "add reversed": lambda x, c: c + x,
    "mm": lambda x, c: x @ c.t(),
    "cat": lambda x, c: torch.cat([x, c]),
    "linear": lambda x, c: F.linear(x, c),
    "in-place": lambda x, c: x.mul_(c),
    "where": lambda x, c: torch.where(x > 0, x, c),
    "index_select": lambda x, c: x.index_select(0, torch.tensor([0])),
    "addcmul": lambda x, c: x.addcmul(c, c),
    "module": lambda x, c: torch.nn.Linear(3, 2)(x),
    "loss": lambda x, c: F.mse_loss(x, c),
}


@pytest.mark.parametrize("program", MIXED.values(), ids=MIXED.keys())
def test_mixed_devices_raise_and_name_both(program):
    _, error, _ = outcome(program, torch.ones(2, 3, device="xla"), torch.ones(2, 3))
    assert type(error) is RuntimeError
    assert "xla" in str(error)
    assert "cpu" in str(error)
    assert str(error).startswith("Expected all tensors to be on the same device")


def test_numpy_raises_as_on_other_devices(device):
    with pytest.raises(TypeError, match="can't convert xla:0 device type tensor to numpy"):
        torch.ones(2, device=device).numpy()


def test_dlpack_raises(device):
    with pytest.raises((RuntimeError, BufferError, ValueError)):
        torch.utils.dlpack.to_dlpack(torch.ones(2, device=device))
    for taker in (torch.from_dlpack, np.from_dlpack):
        with pytest.raises(BufferError, match="DLPack has no device xla:0"):
            taker(torch.ones(2, device=device))
    assert torch.from_dlpack(torch.ones(2)).tolist() == np.from_dlpack(torch.ones(2)).tolist()


# ---- the set-up -----------------------------------------------------------------------------

REPORT = """
import torch, torch_pjrt
def attempt():
    try:
        return torch.ones(2, device="xla").add(1).tolist()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
print(attempt())
print("again", attempt() == attempt())
print("cpu", torch.ones(2).add(1).tolist())
try:
    torch.randn(3, device="xla").sum().item()
except Exception as e:
    print("still", type(e).__name__)
"""


def lines_of(done) -> str:
    assert done.returncode == 0, done.stderr
    assert "Exception raised from" not in done.stdout
    return done.stdout


def test_unknown_device_lists_what_is_there_and_leaves_the_process_usable(run_python):
    said = lines_of(run_python(code=REPORT, PJRT_DEVICE="CPUU"))
    assert "CPUU" in said
    assert "PJRT_DEVICE" in said
    assert "CPU" in said.replace("CPUU", "")
    assert "again True" in said
    assert "cpu [2.0, 2.0]" in said


def test_missing_plugin_file_is_named(run_python):
    done = run_python(code=REPORT, PJRT_DEVICE="NONE", TORCH_PJRT_PLUGIN="NONE:/no/such/plugin.so")
    said = lines_of(done)
    assert "/no/such/plugin.so" in said
    assert "cpu [2.0, 2.0]" in said


def test_library_that_is_no_plugin_is_told(run_python):
    import ctypes.util

    library = next(
        p for p in ("/lib/x86_64-linux-gnu/libm.so.6", ctypes.util.find_library("m") or "") if p
    )
    done = run_python(code=REPORT, PJRT_DEVICE="BAD", TORCH_PJRT_PLUGIN=f"BAD:{library}")
    said = lines_of(done)
    assert library in said
    assert "GetPjrtApi" in said
    assert "cpu [2.0, 2.0]" in said


def test_file_that_is_no_library_is_told(run_python, tmp_path):
    path = tmp_path / "plugin.so"
    path.write_text("not a library")
    done = run_python(code=REPORT, PJRT_DEVICE="BAD", TORCH_PJRT_PLUGIN=f"BAD:{path}")
    assert str(path) in lines_of(done)


def test_plugin_variable_without_a_path_is_told(run_python):
    done = run_python(code=REPORT, PJRT_DEVICE="BAD", TORCH_PJRT_PLUGIN="BAD")
    assert "TORCH_PJRT_PLUGIN" in done.stdout + done.stderr


def test_flag_that_is_no_number_is_told(run_python):
    done = run_python(code=REPORT, XLA_COMPILATION_CACHE_SIZE="many")
    assert "XLA_COMPILATION_CACHE_SIZE" in done.stdout + done.stderr
    assert "many" in done.stdout + done.stderr


# ---- indices out of range -----------------------------------------------------------------------

OUT_OF_RANGE = {
    "embedding": lambda x, i: F.embedding(i, x),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_select of columns": lambda x, i: x.index_select(1, i),
    "gather": lambda x, i: x.gather(1, i[None]),
    "index": lambda x, i: x[i],
    "index twice": lambda x, i: x[i, i],
    "index_put_": lambda x, i: x.index_put_((i,), x[0, 0].clone()),
    "setitem": lambda x, i: x.__setitem__(i, 1.0),
    "scatter": lambda x, i: x.scatter(1, i[None], x),
    "scatter of a number": lambda x, i: x.scatter(1, i[None], 1.0),
    "scatter_add_": lambda x, i: x.scatter_add_(1, i[None], x.clone()),
    "scatter_reduce": lambda x, i: x.scatter_reduce(1, i[None], x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill_": lambda x, i: x.index_fill_(0, i, 1.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "amax"),
    "nll_loss": lambda x, i: F.nll_loss(x[:2], i),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2], i),
    "cross_entropy of images": lambda x, i: F.cross_entropy(x.view(1, 4, 3)[..., :2], i[None]),
    "one index": lambda x, i: x[i[1:]],
}  # fmt: skip


@pytest.mark.parametrize("bad", [9, -9])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_index_out_of_range_raises_where_the_host_has_it(name, bad):
    check_error(OUT_OF_RANGE[name], torch.arange(12.0).view(3, 4), torch.tensor([0, bad]))


@pytest.mark.parametrize("bad", [12, -13])
def test_take_and_put_out_of_range_raise(bad):
    x, i = torch.arange(12.0).view(3, 4), torch.tensor([0, bad])
    check_error(lambda x, i: x.take(i), x, i)
    check_error(lambda x, i: x.put_(i, x[0, :2].clone()), x, i)


@pytest.mark.parametrize(
    "read",
    [
        lambda x, i: F.embedding(i, x),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x[i],
        lambda x, i: x.t().index_select(1, i),
        lambda x, i: x.index_put((i,), torch.ones((), device=x.device)),
        lambda x, i: x.index_fill(0, i, 1.0),
    ],
)
def test_no_index_is_right_where_there_is_nothing(read):
    """Eager's type; what it says of index_fill is about a storage."""

    def program(x, y):
        return read(x, (y * 0).long())

    _, want, _ = outcome(program, f(0, 3), f(4))
    _, got, _ = outcome(program, *moved([f(0, 3), f(4)]))
    assert want is not None
    assert type(got) is type(want)
    check_equal(program, f(0, 3), f(0))


def test_ignored_targets_may_be_anything():
    x, y = torch.arange(12.0).view(3, 4), torch.tensor([0, -100, 3])
    torch.testing.assert_close(
        F.cross_entropy(x.to("xla"), y.to("xla")).cpu(), F.cross_entropy(x, y)
    )


def test_indices_are_checked_again_after_a_sync(device):
    i, x = torch.tensor([0, 7]).to(device), torch.ones(3, device=device)
    torch_pjrt.sync(wait=True)
    for _ in range(2):
        with pytest.raises(IndexError):
            x[i]
        torch_pjrt.sync(wait=True)


def test_indices_are_judged_by_what_they_are_now(device):
    i, x = torch.tensor([5, 7]).to(device), torch.arange(3.0).to(device)
    with pytest.raises(IndexError):
        x[i]
    i.sub_(5)
    assert x[i].tolist() == [0, 2]


def test_views_of_indices_are_checked_for_what_they_show(device):
    i, x = torch.tensor([[0, 7], [1, 2]]).to(device), torch.arange(3.0).to(device)
    assert x[i[:, 0]].tolist() == [0, 1]
    assert x[i[1]].tolist() == [1, 2]
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        x[i[:, 1]]


def test_a_constant_that_the_host_has_no_memory_for_says_so_and_nothing_else_is_lost(device):
    kept = torch.arange(3.0, device=device) + 1
    huge = torch.zeros(1 << 50, device=device)
    with pytest.raises(torch.OutOfMemoryError) as error:
        torch_pjrt.sync()
    first = str(error.value).splitlines()[0]
    assert first == f"out of memory on the host: cannot allocate {4 << 50} bytes"
    del huge
    assert kept.tolist() == [1, 2, 3]
    torch_pjrt.sync(wait=True)
