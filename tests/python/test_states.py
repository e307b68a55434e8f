"""The four states of a tensor, and what moves it from one to another."""

import pytest
import torch
from eager import check

import torch_pjrt
from torch_pjrt import state


@pytest.fixture
def x(device) -> torch.Tensor:
    return torch.arange(6.0).view(2, 3).to(device)


def ready(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch_pjrt.sync(wait=True)
    return y


def test_uploaded_tensor_is_on_the_host_until_it_is_used(x):
    assert state(x) == "host"
    _ = x + 1
    assert state(x) == "device"


def test_reading_a_host_tensor_leaves_it_there(x):
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert state(x) == "host"


def test_a_later_change_of_the_cpu_tensor_is_not_seen(device):
    c = torch.ones(3)
    d = c.to(device)
    c.fill_(7)
    assert d.tolist() == [1, 1, 1]


def test_result_of_an_op_is_pending(x):
    assert state(x + 1) == "ir"


def test_newborn_fill_is_pending(device):
    assert state(torch.zeros(3, device=device)) == "ir"


def test_sync_makes_pending_tensors_device(x):
    y, z = x + 1, torch.zeros(2, device=x.device)
    torch_pjrt.sync()
    assert (state(y), state(z)) == ("device", "device")


READS = {
    "item": lambda y: y.sum().item(),
    "cpu": lambda y: y.cpu(),
    "tolist": lambda y: y.tolist(),
    "bool": lambda y: bool((y > 0).all()),
    "float": lambda y: float(y[0, 0]),
    "int_index": lambda y: [1, 2, 3, 4, 5, 6, 7][y[0, 0].int()],
    "print": repr,
    "format": lambda y: f"{y.sum():.3f}",
    "equal": lambda y: torch.equal(y, y + 0),
    "allclose": lambda y: torch.allclose(y, y * 1),
    "to_cpu": lambda y: y.to("cpu"),
    "copy_to_cpu": lambda y: torch.empty(2, 3).copy_(y),
    "numpy": lambda y: y.cpu().numpy(),
    "nonzero": lambda y: (y > 2).nonzero(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_reading_forces_device_and_is_a_counted_cut(read, x, compiles):
    y = x + 1
    with compiles() as seen:
        y.mul_(1)
        read(y)
        assert state(y) == "device"
    assert seen.cuts >= 1


def test_reading_one_tensor_computes_the_other_pending_ones_too(x):
    y, z = x + 1, x * 2
    y.cpu()
    assert state(z) == "device"


def test_second_read_is_free(x, compiles):
    y = ready(x)
    with compiles() as seen:
        y.cpu()
        assert y.sum(dim=()).shape == ()
        y.tolist()
    assert seen.cuts == 0


def test_window_is_a_view_and_stays_one(x):
    y = ready(x)
    v = y.t()
    assert state(v) == "view"
    v.sum()
    torch_pjrt.sync()
    assert state(v) == "view"
    assert state(y) == "device"


def test_detach_has_the_state_of_its_tensor(x):
    y = ready(x)
    assert state(y.detach()) == "device"
    y.add_(1)
    assert state(y.detach()) == "ir"


def test_in_place_makes_a_device_tensor_pending(x):
    y = ready(x)
    y.add_(1)
    assert state(y) == "ir"


def test_write_through_a_view_makes_the_base_pending(x):
    y = ready(x)
    y[0].add_(1)
    assert state(y) == "ir"


def test_using_a_device_tensor_keeps_its_handle(x):
    y = ready(x)
    _ = y + 1
    assert state(y) == "device"


def test_copy_from_the_cpu_makes_host(x):
    y = ready(x)
    y.copy_(torch.ones(2, 3) * torch.arange(3.0))
    assert state(y) == "host"


def test_failed_op_leaves_the_state(x):
    y = ready(x)
    with pytest.raises(RuntimeError):
        y.add_(torch.ones(5, device=x.device))
    assert state(y) == "device"


def test_state_of_a_cpu_tensor_raises():
    with pytest.raises(RuntimeError, match="device xla"):
        state(torch.ones(2))


def test_wait_runs_nothing(x):
    y = x + 1
    torch_pjrt.wait()
    assert state(y) == "ir"


def test_synchronize_runs_what_is_recorded(x):
    y = x + 1
    torch.xla.synchronize()
    assert state(y) == "device"


def test_dropped_pending_tensor_costs_nothing(x, compiles):
    with compiles() as seen:
        y = x + 1
        del y
        torch_pjrt.sync()
    assert seen.count == 0


def test_dead_tensors_are_forgotten(x):
    torch_pjrt.sync(wait=True)
    before = torch_pjrt._C.live_aliases()
    for _ in range(10):
        y = (x * 2).t()[0] + 1
        y.cpu()
        del y
    assert torch_pjrt._C.live_aliases() <= before


def test_graph_of_runs_nothing_and_changes_no_state(x, compiles):
    x = torch.ones(3, 17).to(x.device)  # a shape of its own: no other test compiled it
    with compiles() as seen:
        y = x + 1
        g = torch_pjrt.graph.of([y])
        assert g.nodes == 3
        assert "aten::add" in g.text
        assert "stablehlo.add" in g.hlo
        assert g.dot.startswith("digraph")
        assert state(y) == "ir"
        y.cpu()
    assert seen.count == 1
    assert torch_pjrt.graph.last().text == g.text


# ---- lazy bits and other dtypes of one memory ---------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        lambda t: t, lambda t: t.unfold(0, 2, 2), lambda t: t[1:], lambda t: t.view(2, 3),
        lambda t: t.as_strided((3,), (1,), 1), lambda t: t.view(2, 3).diagonal(),
    ],
    ids=["whole", "unfold", "slice", "view", "as_strided", "diagonal"],
)  # fmt: skip
def test_neg_in_place_through_a_lazily_negated_view(place):
    def program(x):
        t = torch._neg_view(x)
        place(t).neg_()
        return x, t.clone()

    check(program, torch.arange(6.0) - 2)


def test_neg_in_place_of_the_imaginary_part_of_a_conjugate():
    def program(z):
        z.conj().imag.neg_()
        return z

    check(program, torch.tensor([1 + 2j, 3 - 4j]))


@pytest.mark.parametrize(
    ("first", "dtype", "size"),
    [
        (torch.arange(3.0), torch.uint8, 6),
        (torch.arange(3.0), torch.uint8, 12),
        (torch.arange(12).to(torch.uint8), torch.float32, 2),
        (torch.ones(2, dtype=torch.bool), torch.uint8, 2),
    ],
)
def test_resize_of_a_view_by_dtype_counts_bytes(first, dtype, size):
    check(lambda x: (x.view(dtype).resize_(size).clone(), x), first)


@pytest.mark.parametrize(
    ("first", "dtype", "size"),
    [
        (torch.arange(3.0), torch.uint8, 24),
        (torch.arange(12).to(torch.uint8), torch.float32, 6),
        (torch.ones(2, 2, dtype=torch.complex64), torch.float32, 9),
    ],
)
def test_resize_of_a_view_by_dtype_grows_the_memory(first, dtype, size):
    def program(x):
        n = x.numel() * x.element_size() // dtype.itemsize
        y = x.flatten().view(dtype).resize_(size)
        y[n:] = 0  # undefined until written
        return y.clone(), x

    check(program, first)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_float8_constants_have_eagers_bits_and_outlive_a_sync(dtype):
    special = [0.0, -0.0, float("nan"), 448, 240, 0.9375, 2**-9, 2**-10, 2**-10 * 1.01, 2**-16]
    special += [2**-17, 2**-17 * 1.01, 1.0625, 1.1875, torch.finfo(dtype).max, -17.0]
    for v in [*special, *torch.randn(40, dtype=torch.float64).exp().tolist()]:
        want = torch.full((2,), v, dtype=dtype).view(torch.uint8)
        ours = torch.full((2,), v, dtype=dtype, device="xla")
        torch_pjrt.sync()
        assert torch.equal(ours.cpu().view(torch.uint8), want), v
