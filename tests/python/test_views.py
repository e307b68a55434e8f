"""Views share memory as eager's do: layouts, reads, writes through any chain, across syncs."""

import warnings

import pytest
import torch
from eager import assert_equal, check, check_error, layout, moved, outcome
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import torch_pjrt


def base() -> torch.Tensor:
    return torch.arange(24.0).view(4, 6)


VIEWS = {
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "transpose": lambda x: x.transpose(-1, 0),
    "permute": lambda x: x.permute(1, 0),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "movedim": lambda x: x.view(2, 2, 6).movedim(0, 2),
    "view": lambda x: x.view(3, 8),
    "view_minus_one": lambda x: x.view(-1),
    "view_as": lambda x: x.view_as(torch.empty(2, 12)),
    "reshape": lambda x: x.reshape(2, 2, 6),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "select": lambda x: x.select(0, 2),
    "select_negative": lambda x: x.select(1, -1),
    "slice": lambda x: x[1:3],
    "slice_step": lambda x: x[::2, 1::3],
    "slice_empty": lambda x: x[2:2],
    "narrow": lambda x: x.narrow(1, 2, 3),
    "int_index": lambda x: x[1, 2],
    "ellipsis": lambda x: x[..., 3],
    "none_index": lambda x: x[:, None, 1],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze_dim": lambda x: x[:, :1].squeeze(1),
    "squeeze_dims": lambda x: x[:1, :1].squeeze((0, 1)),
    "squeeze_nothing": lambda x: x.squeeze(1),
    "diagonal": lambda x: x.diagonal(),
    "diagonal_offset": lambda x: x.diagonal(1, -1, 0),
    "unfold_disjoint": lambda x: x.unfold(1, 2, 2),
    "as_strided": lambda x: x.as_strided((2, 3), (6, 2), 1),
    "as_strided_flat": lambda x: x.as_strided((5,), (3,)),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "split": lambda x: x.split(3, 1)[0],
    "split_sizes": lambda x: x.split([1, 3], 0)[1],
    "tensor_split": lambda x: x.tensor_split(4, 1)[2],
    "hsplit": lambda x: x.hsplit(2)[1],
    "vsplit": lambda x: x.vsplit(2)[0],
    "unbind": lambda x: x.unbind(1)[4],
    "iterate": lambda x: list(x)[1],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "alias": lambda x: torch.ops.aten.alias(x),
    "view_int": lambda x: x.view(torch.int32),
    "view_bytes": lambda x: x.view(torch.uint8),
    "view_wider": lambda x: x.view(torch.float64),
    "complex": lambda x: torch.view_as_complex(x.view(4, 3, 2)),
    "complex_real": lambda x: torch.view_as_complex(x.view(4, 3, 2)).real,
    "complex_imag": lambda x: torch.view_as_complex(x.view(4, 3, 2)).imag,
    "complex_and_back": lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 3, 2)))[1],
    "chain": lambda x: x.t()[1:5:2].unsqueeze(0).transpose(0, 2)[1],
    "chain_strided": lambda x: x[1:, ::2].t().select(0, 1)[1:],
    "chain_view_of_slice": lambda x: x[2:].view(3, 4).t().diagonal(),
    "contiguous": lambda x: x.view(1, 2, 2, 6).contiguous()[0],
}  # fmt: skip
every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())


def write_into(v: torch.Tensor) -> None:
    if v.dtype == torch.uint8:
        v.fill_(7)
    else:
        v.mul_(2).add_(1)


@every_view
def test_view_has_eagers_layout(view):
    x = base()
    ours, eager = view(moved(x)), view(x)
    assert layout(ours) == layout(eager)
    assert ours._is_view() == eager._is_view()


@every_view
def test_write_through_a_view_reaches_the_base(view):
    def program(x):
        v = view(x)
        write_into(v)
        return x, v

    check(program, base(), exact=True)


@every_view
def test_write_through_a_view_reaches_the_base_after_a_sync(view):
    def program(x):
        v = view(x)
        torch_pjrt.sync()
        write_into(v)
        return x, v

    check(program, base() + 1, exact=True)


@every_view
def test_write_to_the_base_is_seen_by_an_older_view(view):
    def program(x):
        v = view(x)
        _ = v.sum()  # the view has been read once already
        x.mul_(3)
        return v, v.clone()

    check(program, base(), exact=True)


@every_view
def test_reading_a_view_gives_eagers_bytes(view):
    x = base()
    ours = view(moved(x) + 0)
    assert torch.equal(ours.cpu(), view(x).clone())


@pytest.mark.parametrize("sync", [False, True], ids=["pending", "synced"])
def test_sibling_views_see_each_others_writes(sync):
    def program(x):
        a, b, c = x[1:3], x.t(), x.view(-1)
        if sync:
            torch_pjrt.sync()
        a.add_(100)
        b[2].mul_(2)
        c[5:9].zero_()
        a[0, 1:4].copy_(torch.tensor([1.0, 2.0, 3.0]))
        return x, a, b, c

    check(program, base(), exact=True)


def test_view_keeps_the_memory_of_a_dropped_base_alive(device):
    v = base().to(device)[1]
    torch_pjrt.sync()
    v += 1
    assert v.tolist() == [7, 8, 9, 10, 11, 12]


def test_views_make_no_nodes_and_copy_nothing(device, compiles):
    x = base().to(device) + 1
    with compiles() as seen:
        v = x.t()[1:].unsqueeze(0).detach()
        assert torch_pjrt.state(v) == "view"
    assert (seen.count, seen.cuts) == (0, 0)


def test_reading_a_view_of_a_synced_tensor_compiles_nothing(device, compiles):
    x = base().to(device) + 1
    with compiles() as seen:
        assert x.t()[2].tolist() == [3, 9, 15, 21]
    assert (seen.count, seen.cuts) == (0, 0)


def test_detach_shares_and_records_nothing(device):
    x = base().to(device) + 1
    d = x.detach()
    assert torch_pjrt.graph.of(d).text == torch_pjrt.graph.of(x).text
    d.zero_()
    assert x.sum().item() == 0


# ---- writes that must raise -----------------------------------------------------------------


OVERLAPPING = {
    "expand": lambda x: x[:, :1].expand(4, 6),
    "expand_0d": lambda x: x[0, 0].expand(3),
    "expand_leading": lambda x: x.expand(2, 4, 6),
    "broadcast_to": lambda x: torch.broadcast_to(x[0], (4, 6)),
    "expand_as": lambda x: x[:1].expand_as(torch.empty(4, 6)),
    "as_strided_zero": lambda x: x.as_strided((3, 4), (0, 1)),
}
WRITES = {
    "add_": lambda v: v.add_(1),
    "mul_": lambda v: v.mul_(v),
    "fill_": lambda v: v.fill_(1),
    "zero_": lambda v: v.zero_(),
    "copy_": lambda v: v.copy_(torch.zeros((), device=v.device).expand(v.shape)),
    "copy_cpu": lambda v: v.copy_(torch.arange(float(v.numel())).view(v.shape)),
    "relu_": lambda v: v.relu_(),
    "setitem": lambda v: v.__setitem__(slice(None), 3.0),
    "out=": lambda v: torch.add(v, 1, out=v),
    "normal_": lambda v: v.normal_(),
    "clamp_": lambda v: v.clamp_(0, 1),
}


@pytest.mark.parametrize("view", OVERLAPPING.values(), ids=OVERLAPPING.keys())
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_write_into_an_overlapping_view_does_what_eager_does(view, write):
    x = base()
    y = moved(x)
    _, eager, _ = outcome(lambda: write(view(x)))
    _, ours, _ = outcome(lambda: write(view(y)))
    assert type(ours) is type(eager), ours
    if eager:
        assert str(ours).splitlines()[0] == str(eager).splitlines()[0]
    assert torch.equal(y.cpu(), x)


def test_view_of_non_viewable_strides_raises_eagers_text():
    check_error(lambda x: x.t().view(-1), base())


@pytest.mark.parametrize("expand", [torch.Tensor.expand, torch.expand_copy])
def test_a_new_leading_dim_has_no_size_to_keep(expand):
    with pytest.raises(RuntimeError, match=r"\(-1\) isn't allowed in a leading, non-existing dim"):
        expand(torch.ones(2, device="xla"), (-1, 2))


def test_unbound_views_cannot_be_written_under_grad():
    check_error(lambda x: (x * 1).unbind(0)[0].add_(1), base().requires_grad_())


# ---- storage surgery ------------------------------------------------------------------------


def test_as_strided_means_memory_of_the_base():
    check(lambda x: x[1:].t().as_strided((2, 2), (1, 4), 2).add_(50), base(), exact=True)


def test_as_strided_of_a_transposed_copy_means_its_memory():
    def program(x):
        y = x.t().clone(memory_format=torch.preserve_format)
        y.as_strided((3,), (2,), 1).fill_(-1)
        return y

    check(program, base(), exact=True)


def test_set_makes_two_tensors_one():
    def program(x, y):
        y.set_(x)
        y.add_(1)
        return x, y

    check(program, base(), torch.zeros(2), exact=True)


def test_set_with_a_window():
    def program(x, y):
        y.set_(x, 2, (3, 2), (6, 1))
        y.mul_(10)
        return x, y, torch.tensor(y.is_set_to(x)), torch.tensor(y.is_set_to(y.view_as(y)))

    ours = moved(base())
    program(ours, moved(torch.zeros(1)))
    eager = base()
    program(eager, torch.zeros(1))
    assert_equal(ours, eager, exact=True)


def test_set_of_a_storage_shares():
    def program(x, y):
        y.set_(x.untyped_storage(), 6, (6,), (1,))
        y.zero_()
        return x

    check(program, base(), torch.zeros(0), exact=True)


def test_set_to_nothing_empties():
    x = base().to("xla")
    x.set_()
    assert x.shape == (0,)


@pytest.mark.parametrize("size", [(2, 3), (5, 7), (0,), (24,), (4, 6), ()], ids=str)
@pytest.mark.parametrize("sync", [False, True], ids=["pending", "synced"])
def test_resize_keeps_what_was_there(size, sync):
    def program(x):
        y = x + 1
        if sync:
            torch_pjrt.sync()
        y.resize_(size)
        return y.view(-1)[:24].clone()  # beyond 24 eager leaves bytes undefined

    check(program, base(), exact=True)


def test_resize_then_fill_and_view():
    def program(x):
        y = x.clone()
        y.resize_(3, 2, 4).copy_(torch.arange(24.0).view(3, 2, 4))
        return y, y[1].t()

    check(program, torch.zeros(2), exact=True)


def test_resize_of_a_window_keeps_its_offset():
    check(lambda x: (x[1:], x[1:].resize_(3)), base(), exact=True)


def test_data_assignment_replaces_value_and_shape():
    def program(x, y):
        x.data = y
        y.add_(1)
        return x

    check(program, base(), torch.ones(3), exact=True)


def test_data_in_place_is_seen_by_the_tensor():
    def program(x):
        x.data.mul_(2)
        x.data[0] = 9
        return x

    check(program, base(), exact=True)


def test_swap_tensors(device):
    a, b = torch.ones(2, device=device), torch.zeros(3, device=device) + 5
    torch.utils.swap_tensors(a, b)
    assert (a.tolist(), b.tolist()) == ([5, 5, 5], [1, 1])


# ---- layouts of results ---------------------------------------------------------------------


LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.t(),
    "gaps": lambda x: x[::2, 1:].t(),
    "overlapping": lambda x: x.as_strided((2, 3), (1, 1)),
    "unfold": lambda x: x.unfold(0, 2, 1)[:, :3],
    "expanded": lambda x: x[:, :1].expand(4, 6).t(),
    "column": lambda x: x[:, :1].clone().t().contiguous().t(),
    "odd_ones": lambda x: x[:1].t().contiguous().swapaxes(0, 1).swapaxes(0, 1),
    "channels_last": lambda x: x.view(1, 4, 2, 3).contiguous(memory_format=torch.channels_last),
    "zero_sized": lambda x: x[:, :0].t(),
}
KEEPING = {
    "clone": lambda x: x.clone(),
    "abs": lambda x: x.abs(),
    "relu": lambda x: x.relu(),
    "add": lambda x: x + 1,
    "nan_to_num": lambda x: x.nan_to_num(),
    "to_double": lambda x: x.double(),
    "empty_like": lambda x: torch.zeros_like(x),
    "contiguous": lambda x: x.contiguous(),
    "masked_fill": lambda x: x.masked_fill(x > 3, 0),
    "flip": lambda x: x.flip(0),
    "cumsum": lambda x: x.cumsum(0),
    "roll": lambda x: x.roll(1, -1),
    "roll two dims": lambda x: x.roll((1, 2), (0, 1)),
    "roll all": lambda x: x.roll(1),
    "index_fill": lambda x: x.index_fill(0, torch.zeros(1, dtype=torch.long, device=x.device), 2)
    if x.numel() else x.clone(),
    "lerp": lambda x: x.lerp(x + 1, 0.5),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("op", KEEPING.values(), ids=KEEPING.keys())
@pytest.mark.parametrize("place", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_results_have_eagers_strides(place, op):
    x = base()
    ours, eager = op(place(moved(x))), op(place(x))
    if eager.numel():  # an empty tensor's strides mean nothing, and eager's follow no rule
        assert layout(ours) == layout(eager)
    assert_equal(ours, eager)


# ---- copies between devices, dtypes and layouts -----------------------------------------------


COPIED = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool,
          torch.complex64]  # fmt: skip


@pytest.mark.parametrize("source", COPIED, ids=str)
@pytest.mark.parametrize("target", COPIED, ids=str)
@pytest.mark.parametrize("devices", ["xla xla", "xla cpu", "cpu xla"])
def test_copy_casts_and_keeps_the_targets_layout(devices, target, source):
    to, of = devices.split()
    x = (base() % 5).to(source)
    eager = torch.zeros(6, 4, dtype=target).t()
    ours = moved(eager, to)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a complex number loses its imaginary part
        ours.copy_(moved(x, of))
        eager.copy_(x)
    assert layout(ours) == layout(eager)
    assert torch.equal(ours.cpu(), eager)


@pytest.mark.parametrize("place", ["transposed", "gaps", "unfold", "expanded", "channels_last"])
@pytest.mark.parametrize("there", ["cpu", "xla"])
def test_any_layout_copies_to_any_device(place, there):
    x = base()
    got = LAYOUTS[place](moved(x)).to(there, torch.float64)
    assert layout(got) == layout(LAYOUTS[place](x).to(torch.float64, copy=True))
    assert torch.equal(got.cpu(), LAYOUTS[place](x).double())


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
def test_data_of_another_dtype_replaces_dtype_and_value(dtype):
    def program(x, y):
        x.data = y
        x.mul_(2)
        return x, y

    check(program, base(), torch.arange(6).to(dtype).view(2, 3), exact=True)


@pytest.mark.parametrize(
    "bits", [lambda x: x, torch._neg_view, lambda x: x.to(torch.cfloat).conj()]
)
@pytest.mark.parametrize(
    "other", [lambda x: x, torch._neg_view, lambda x: x.to(torch.cfloat).conj()]
)
def test_data_may_be_lazily_negated_or_conjugated(bits, other):
    def program(x, y):
        t = bits(x)
        t.data = other(y)
        return t.resolve_conj().resolve_neg() + 1, t.is_neg(), t.is_conj()

    check(program, base(), base() + 2, exact=True)


def rows(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Dense tensors whose strides of size-1 dims are not those of row-major ones."""
    return {"column": x[0].view(1, 6).t(), "row": x[0].view(6, 1).t(), "window": x[1:2]}


@pytest.mark.parametrize("left", ["column", "row", "window"])
@pytest.mark.parametrize("right", ["column", "row", "window"])
def test_views_keep_what_eager_makes_of_the_strides_of_size_1_dims(left, right):
    x = torch.arange(24.0).view(4, 6)
    want, got = rows(x), rows(moved(x))
    shape = (1, 6, 1, 1)
    assert got[right].view(shape).stride() == want[right].view(shape).stride()
    ours, eager = torch.kron(got[left], got[right]), torch.kron(want[left], want[right])
    assert layout(ours) == layout(eager)
    assert_equal(ours, eager)


def test_views_made_before_data_is_replaced_keep_the_old_memory():
    def program(x):
        v = x[1]
        x.data = torch.ones(2, 2, device=x.device)
        v.add_(1)
        x.add_(1)
        return x, v

    check(program, base(), exact=True)


def test_wider_elements_may_leave_a_rest_at_the_end_of_the_memory():
    def program(x):
        pair = x.view(-1)[:21].clone().as_strided((2, 2), (2, 1))
        as_complex, as_double = torch.view_as_complex(pair), pair.view(torch.float64)
        before = as_complex.clone(), as_complex + 1
        as_complex.mul_(2)
        return pair, as_complex, as_double, *before

    check(program, base(), exact=True)


def test_view_as_complex_halves_any_stride_of_a_size_1_dim():
    def program(x):
        row = x.view(-1)[:5].unsqueeze(0)[:, :2]
        assert torch.view_as_complex(row).stride() == (2,)
        return torch.view_as_complex(row), torch.view_as_complex(x[:, :2].unsqueeze(1))

    check(program, base(), exact=True)


def test_views_of_resized_memory_see_it():
    def program(x):
        y = x + 0
        v = y.view(-1)[2:5]
        y.resize_(2, 2).fill_(7)
        return y, v

    check(program, base(), exact=True)


# ---- odd shapes -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2)], ids=str)
def test_zero_size_tensors_have_views(shape):
    def program(x):
        y = x.transpose(0, -1).unsqueeze(0)
        y.add_(1)
        return y, x.view(-1), x.sum(), x[..., :1]

    check(program, torch.zeros(shape), exact=True)


def test_0d_tensors_have_views():
    def program(x):
        v = x.view(1).unsqueeze(0)
        v.add_(2)
        return x, v, x.view(()), x.expand(2, 2), x.reshape(1, 1)

    check(program, torch.tensor(3.0), exact=True)


def test_channels_last_survives_ops():
    def program(x):
        x = x.contiguous(memory_format=torch.channels_last)
        y = x * 2
        v = y.permute(0, 2, 3, 1)
        v[0, 1].zero_()
        return y, v, y.contiguous(), y.clone(), torch.empty_like(y).fill_(1), y[:, 1:]

    check(program, torch.arange(48.0).view(2, 3, 4, 2), exact=True)


CHANNELS = {
    "conv2d": lambda x, w: torch.nn.functional.conv2d(x, w),
    "conv_transpose2d": lambda x, w: torch.nn.functional.conv_transpose2d(x, w),
    "batch_norm": lambda x, w: torch.nn.functional.batch_norm(x, None, None, training=True),
    "pad": lambda x, w: torch.nn.functional.pad(x, (1, 1)),
    "reflect": lambda x, w: torch.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pool": lambda x, w: torch.nn.functional.adaptive_avg_pool2d(x, 2),
    "max_pool": lambda x, w: torch.nn.functional.max_pool2d(x, 2),
    "shuffle": lambda x, w: torch.nn.functional.pixel_shuffle(x, 2),
    "unshuffle": lambda x, w: torch.nn.functional.pixel_unshuffle(x, 2),
    "channels": lambda x, w: torch.nn.functional.channel_shuffle(x, 2),
    "roll": lambda x, w: x.roll(1, 2),
    "stack": lambda x, w: torch.stack([x, x], 1),
    "stack_last": lambda x, w: torch.stack([x, x], -1),
    "rrelu": lambda x, w: torch.nn.functional.rrelu(x),
}


@pytest.mark.parametrize("op", CHANNELS.values(), ids=CHANNELS.keys())
@pytest.mark.parametrize("last", [True, False])
def test_results_of_channels_last_tensors_are_so_too(op, last):
    x, w = torch.linspace(-1, 1, 512).view(2, 8, 4, 8), torch.linspace(-1, 1, 256).view(8, 8, 2, 2)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    ours, eager = op(moved(x), moved(w)), op(x, w)
    assert layout(ours) == layout(eager)
    torch.testing.assert_close(ours.cpu(), eager, rtol=1e-4, atol=1e-4)
    flat = ours.flatten(1).mul(2)  # reads through the layout
    torch.testing.assert_close(flat.cpu(), eager.flatten(1).mul(2), rtol=1e-4, atol=1e-4)


ODD = {
    "empty": lambda x: x[:0].as_strided((0, 4), (7, 9)),
    "empty column": lambda x: x.view(-1)[:0].as_strided((0,), (3,)),
    "size 1": lambda x: x.as_strided((1, 4), (9, 1)),
    "window": lambda x: x[1:, 1:],
    "overlapping": lambda x: x.view(-1).as_strided((3, 4), (1, 1)),
}
ODD_OPS = {
    "neg": torch.neg,
    "relu6": torch.nn.functional.relu6,
    "frexp": torch.frexp,
    "prelu": lambda x: torch.nn.functional.prelu(x, torch.ones(1, device=x.device)),
    "add 0-d": lambda x: x + torch.tensor(2.0, device=x.device),
    "floor_divide 0-d": lambda x: x // torch.tensor(2.0, device=x.device),
    "logical_and 0-d": lambda x: x.logical_and(torch.tensor(2.0, device=x.device)),
    "where": lambda x: torch.where(x > 0, x, x),
    "select_scatter": lambda x: x.select_scatter(x.select(-1, 0) * 2, -1, -1) if x.shape[-1] else x,
    "slice_scatter": lambda x: x.slice_scatter(x[:, 1:2] * 2, 1, 0, 1) if x.dim() > 1 else x,
    "diagonal_scatter": lambda x: x.diagonal_scatter(x.diagonal() + 9) if x.dim() > 1 else x,
    "as_strided_scatter": lambda x: x.as_strided_scatter(x + 1, x.shape, x.stride()),
}


@pytest.mark.parametrize("op", ODD_OPS.values(), ids=ODD_OPS.keys())
@pytest.mark.parametrize("place", ODD.values(), ids=ODD.keys())
def test_results_of_oddly_laid_out_tensors_lie_as_eagers_do(place, op):
    x = torch.linspace(-8, 8, 24).view(4, 6)
    ours, eager = op(place(moved(x))), op(place(x))
    for got, want in zip(as_list(ours), as_list(eager), strict=True):
        assert layout(got) == layout(want)
        assert got.storage_offset() == want.storage_offset()
        assert_equal(got, want)


def as_list(t):
    return [t] if isinstance(t, torch.Tensor) else list(t)


def test_contiguous_of_contiguous_is_the_same_tensor(device):
    x = torch.ones(2, 3, device=device)
    assert x.contiguous() is x
    assert x.t().contiguous().stride() == (2, 1)


def test_expanded_reads_and_reductions():
    def program(x):
        e = x[:, :1].expand(4, 6)
        return e.sum(), e + x, e.clone(), e.contiguous(), e[1:, 2]

    check(program, base(), exact=True)


FILLS = {
    "mask": lambda e, m: e.masked_fill_(m, 9),
    "mask, tensor": lambda e, m: e.masked_fill_(m, torch.tensor(9.0, device=e.device)),
    "row mask": lambda e, m: e.masked_fill_(m[0], 9),
    "index of the expanded dim": lambda e, m: e.index_fill_(
        0, torch.tensor([2], device=e.device), 9
    ),
    "index of the other dim": lambda e, m: e.index_fill_(
        1, torch.tensor([1, 3], device=e.device), 9
    ),
    "no index": lambda e, m: e.index_fill_(
        0, torch.tensor([], dtype=torch.long, device=e.device), 9
    ),
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS.keys())
def test_expanded_tensors_are_filled_where_any_of_their_elements_is(fill):
    def program(x):
        e = x[0].expand(4, 6)
        mask = torch.zeros(4, 6, dtype=torch.bool, device=x.device)
        mask[1, 2] = mask[3, 4] = True
        assert fill(e, mask) is e
        return e, x

    with pytest.warns(UserWarning, match="on expanded tensors is deprecated"):
        check(program, base(), exact=True)


def test_unfold_overlapping_reads():
    check(lambda x: (x.unfold(0, 2, 1).sum(-1), x.unfold(1, 3, 2)), base(), exact=True)


# ---- assignment by index --------------------------------------------------------------------


SETITEMS = {
    "number": lambda x: x.__setitem__((1, 2), 5),
    "row": lambda x: x.__setitem__(1, torch.arange(6.0, device=x.device)),
    "cpu_scalar": lambda x: x.__setitem__(1, torch.tensor(4.0)),
    "slice": lambda x: x.__setitem__((slice(None, None, 2), slice(1, 4)), 9),
    "broadcast": lambda x: x.__setitem__(slice(1, 3), torch.ones(6, device=x.device)),
    "ellipsis": lambda x: x.__setitem__((..., -1), x[..., 0]),
    "self_overlap": lambda x: x.__setitem__(0, x[1] + x[0]),
    "mask": lambda x: x.__setitem__(x > 10, 0),
    "index": lambda x: x.__setitem__(torch.tensor([0, 2], device=x.device), 7),
    "index_cpu": lambda x: x.__setitem__(([0, 1], [2, 3]), -1),
    "int_into_float": lambda x: x.__setitem__(2, torch.arange(6, device=x.device)),
}


@pytest.mark.parametrize("assign", SETITEMS.values(), ids=SETITEMS.keys())
def test_setitem_through_a_transposed_view(assign):
    def program(x):
        v = x.t()
        assign(v.t())
        return x, v

    check(program, base(), exact=True)


# ---- autograd through views -----------------------------------------------------------------


GRADS = {
    "slice_write": lambda y: y[1:, ::2].mul_(2),
    "transpose_write": lambda y: y.t()[1].add_(3),
    "diagonal_write": lambda y: y.diagonal().mul_(5),
    "select_copy": lambda y: y[0].copy_(y[1] * 2),
    "view_then_base": lambda y: (y.view(-1)[3:7].zero_(), y.mul_(2)),
    "base_then_view": lambda y: (y.mul_(2), y[2].mul_(3)),
    "as_strided": lambda y: y.as_strided((2, 2), (6, 1), 1).mul_(4),
    "unfold": lambda y: y.unfold(1, 2, 2)[:, 1].mul_(3),
}


@pytest.mark.parametrize("write", GRADS.values(), ids=GRADS.keys())
def test_gradients_flow_through_in_place_writes_into_views(write):
    def program(x):
        y = x * 1
        write(y)
        (y * y).sum().backward()
        return x.grad

    check(program, base().requires_grad_())


# ---- random chains --------------------------------------------------------------------------


def step(t: torch.Tensor, kind: str, a: int, b: int) -> torch.Tensor:
    """A view of t, made from two numbers; t itself where the kind does not fit."""
    n = t.dim()
    if kind == "unsqueeze":
        return t.unsqueeze(a % (n + 1)) if n < 5 else t
    if kind == "view_flat":
        return t.view(-1) if t.is_contiguous() else t
    if n == 0:
        return t
    d, size = a % n, t.size(a % n)
    if kind == "transpose":
        return t.transpose(d, b % n)
    if kind == "permute":
        return t.permute([(i + a) % n for i in range(n)])
    if kind == "select":
        return t.select(d, b % size) if size else t
    if kind == "slice":
        return t.narrow(d, b % (size + 1), (size - b % (size + 1)) // (1 + a % 2))
    if kind == "stepped":
        return t[(slice(None),) * d + (slice(b % 2, None, 1 + b % 3),)]
    if kind == "squeeze":
        return t.squeeze(d)
    if kind == "diagonal":
        return t.diagonal(a % 3 - 1, d, (d + 1) % n) if n > 1 else t
    if kind == "unfold":
        return t.unfold(d, 1 + b % size, 1 + b % size) if size and n < 5 else t
    if kind == "expand":
        return t.expand((*t.shape[:d], 3, *t.shape[d + 1 :])) if size == 1 else t
    if kind == "detach":
        return t.detach()
    if kind == "as_strided":
        return t.as_strided((2, 2), (1 + a % 3, 3 + b % 4), a % 4)  # inside the base's 24 elements
    raise AssertionError(kind)


KINDS = ["transpose", "permute", "select", "slice", "stepped", "squeeze", "unsqueeze", "diagonal"]
KINDS += ["unfold", "expand", "detach", "as_strided", "view_flat"]


def write(pool: list[torch.Tensor], t: torch.Tensor, kind: str, k: int) -> None:
    if kind == "add":
        t.add_(k)
    elif kind == "mul":
        t.mul_(-2)
    elif kind == "fill":
        t.fill_(k)
    elif kind == "copy":
        t.copy_(torch.arange(float(t.numel())).view(t.shape).to(t.device))
    elif kind == "add_other":
        t.add_(pool[k % len(pool)].sum())
    elif kind == "relu":
        t.relu_()


WRITE_KINDS = ["add", "mul", "fill", "copy", "add_other", "relu"]
INSTRUCTION = st.one_of(
    st.tuples(st.just("view"), st.sampled_from(KINDS), st.integers(0, 8), st.integers(0, 8),
              st.integers(0, 8)),
    st.tuples(st.just("write"), st.sampled_from(WRITE_KINDS),
              st.integers(0, 8), st.integers(0, 8), st.just(0)),
    st.tuples(st.just("sync"), st.just(""), st.just(0), st.just(0), st.just(0)),
)  # fmt: skip


def run(instructions, x: torch.Tensor) -> tuple[list[torch.Tensor], list[str]]:
    pool, errors = [x], []
    for what, kind, source, a, b in instructions:
        t = pool[source % len(pool)]
        if what == "sync":
            torch_pjrt.sync()
            continue
        try:
            if what == "view":
                pool.append(step(t, kind, a, b))
            else:
                write(pool, t, kind, a)
        except RuntimeError as e:
            errors.append(str(e).splitlines()[0])
    return pool, errors


@settings(
    max_examples=40, deadline=None, derandomize=True, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(st.lists(INSTRUCTION, min_size=3, max_size=12))
def test_random_chains_of_views_and_writes_agree_with_eager(instructions):
    eager, eager_errors = run(instructions, base())
    ours, our_errors = run(instructions, moved(base()))
    assert our_errors == eager_errors
    assert [layout(t) for t in ours] == [layout(t) for t in eager]
    assert_equal(ours, eager, exact=True)


MADE = {
    "sum": lambda x: x + 1,
    "gather": lambda x: x.take(torch.arange(16, device=x.device)),
    "product": lambda x: x.view(4, 4) @ torch.eye(4, device=x.device),
    "reduction": lambda x: torch.stack([x, x]).sum(0),
    "cat": lambda x: torch.cat([x[8:], x[:8]]),
    "window": lambda x: torch.cat([x, x])[8:24],
    "sort": lambda x: x.flip(0).sort()[0],
    "scan": lambda x: x.cumsum(0),
    "scatter": lambda x: x.index_add(0, torch.tensor([3], device=x.device), x[:1] + 1),
    "transposed": lambda x: x.view(2, 8).mT.contiguous(),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE.keys())
@pytest.mark.parametrize("make", [lambda v: v * 2, lambda v: v.flip(0), torch.clone], ids="mfc")
@pytest.mark.parametrize(("old", "new"), [
    ((2, 8), (4, 4)), ((4, 4), (16,)), ((16,), (16,)), ((16, 1), (2, 4, 2)), ((2, 4, 2), (16, 1)),
    ((16,), (1, 16)), ((4, 4), (4, 4)),
], ids=str)  # fmt: skip
def test_a_reshaped_copy_written_from_its_source_reads_the_source(old, new, make, made):
    """XLA made such an update in place, and read what it had just written."""

    def run(x):
        copies = []
        for d, size in enumerate(new):
            source = made(x).reshape(old)
            z = source.reshape(new).clone()
            w = z.narrow(d, size - max(size // 2, 1), max(size // 2, 1))
            start = min(3, 16 - w.numel())
            w.copy_(make(source.reshape(1, 16)[0, start : start + w.numel()].reshape(w.shape)))
            last = torch.tensor([size - 1], device=x.device)
            part = make(source.reshape(16, 1)[: 16 // size]).reshape(z.select(d, 0).shape)
            copies += [z, z.index_copy(d, last, part.unsqueeze(d))]
        return copies

    check(run, torch.arange(16.0))


@pytest.mark.parametrize("seen", [torch.uint8, torch.int16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("written", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.int16, torch.float32, torch.int64, torch.complex64],
                         ids=str)  # fmt: skip
def test_memory_written_as_one_dtype_is_read_as_another(dtype, written, seen):
    """XLA merges a bitcast of a bitcast, whatever their widths, and then refuses their shapes."""

    def run(x):
        x = x.clone()
        x.view(written).fill_(1)
        x[:1].view(written)[..., :1] = 0
        return [x.view(seen), x.view(seen).flatten()[:2].clone(), x]

    check(run, torch.arange(16).view(2, 8).to(dtype))
