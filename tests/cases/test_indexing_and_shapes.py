"""Indices, broadcasts, ties, empty tensors, layouts, and errors where they are made."""

import torch
from both import as_on_the_cpu, refused, sync
from torch.nn import functional as F


@as_on_the_cpu
def test_a_mask_is_broadcast_and_takes_a_number_of_the_cpu(device):
    # pytorch/xla#5688
    x = torch.tensor([[0.1, 0.9], [0.6, 0.2]], device=device)
    filled = x.masked_fill((x[0] >= 0.5).unsqueeze(0), 10)
    rows = torch.tensor([[True], [False]], device=device)
    return filled, x.masked_fill_(rows, torch.tensor(-1.0))


@as_on_the_cpu
def test_the_place_of_the_largest_of_all_keeps_dims_where_asked(device):
    # pytorch/xla#6536
    a = torch.tensor([[[1.0, 5.0], [0.0, 2.0]]], device=device)
    return torch.argmax(a, None, keepdim=True), torch.argmin(a)


@as_on_the_cpu
def test_the_last_of_equals_is_the_running_maximum(device):
    # pytorch/xla#8675
    rising = torch.cummax(torch.tensor([1, 1, 0, 1], device=device), 0)
    return rising, torch.cummin(torch.tensor([2, 2, 3], device=device), 0)


@as_on_the_cpu
def test_indices_of_and_into_empty_tensors_give_eagers_shapes(device):
    # pytorch/xla#7113, pytorch/xla#608
    def at(*shape):
        return torch.zeros(shape, dtype=torch.int64, device=device)

    v = torch.arange(24.0, device=device).view(2, 3, 4)
    empty = torch.empty(0, 4, device=device)[at(0, 5, 5)]
    apart = torch.empty(3, 0, 2, 5, device=device)[:, at(5, 0, 5), :, at(5, 1, 1)]
    return empty, apart, v[:, at(0, 6)], v[:, torch.tensor([[2], [0]], device=device), 1]


@as_on_the_cpu
def test_the_largest_of_nothing_is_refused_and_the_sum_is_zero(device):
    # pytorch/xla#887
    nothing = torch.rand(2, 0, 4, device=device)
    said = [
        refused(nothing.max),
        refused(lambda: nothing.max(1)),
        refused(lambda: nothing.argmax(1)),
    ]
    return said, nothing.sum()


@as_on_the_cpu
def test_wrong_shapes_are_refused_where_they_are_met_and_the_device_goes_on(device):
    # pytorch/xla#8346, pytorch/xla#9486
    a = torch.ones(2, 3, device=device)
    wrong = [
        lambda: a + torch.ones(4, device=device),
        lambda: a @ a,
        lambda: torch.cat([a, a[:, :2]]),
        lambda: a.view(4),
        lambda: a.expand(3, 3),
        lambda: a[:, 5],
        lambda: torch.zeros(3, device=device).copy_(a),
    ]
    return [refused(call) for call in wrong], a + 1


@as_on_the_cpu
def test_masked_scatter_broadcasts_the_tensor_to_the_mask(device):
    # pytorch/xla#3315
    t = torch.tensor([[1.0, 2.0, 3.0]], device=device)
    mask = torch.tensor([[1, 0, 1], [0, 1, 0]], device=device).bool()
    return t.masked_scatter(mask, torch.arange(10.0, 50.0, 10.0, device=device))


@as_on_the_cpu
def test_scatter_add_takes_bools_and_a_source_longer_than_its_index(device):
    # pytorch/xla#889, pytorch/xla#1657
    index = torch.tensor([[0, 1, 2], [2, 0, 0]], device=device)
    ones = torch.ones(2, 3, dtype=torch.bool, device=device)
    bools = torch.zeros(3, 3, dtype=torch.bool, device=device).scatter_add_(0, index, ones)
    source = torch.tensor([1.0, 2.0, 50.0], device=device)
    return bools, torch.zeros(3, device=device).scatter_add_(0, index[0, :1].repeat(2), source)


@as_on_the_cpu
def test_pixels_are_shuffled_and_put_back(device):
    # pytorch/xla#6907
    y = F.pixel_shuffle(torch.arange(8.0, device=device).view(1, 4, 1, 2), 2)
    return y, F.pixel_unshuffle(y, 2)


@as_on_the_cpu
def test_gathers_of_no_elements_have_shapes_and_strides(device):
    # pytorch/xla#880
    a = torch.empty(0, 1, 2, device=device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    like = torch.randint_like(torch.zeros(5, 0, 1, dtype=torch.uint8, device=device), 6)
    gathered = a.gather(0, none.view(0, 1, 1).expand(0, 1, 2))
    picked = torch.ones(3, 2, device=device).index_select(0, none)
    return gathered, picked, like, torch.empty(0, 3, device=device).stride()


@as_on_the_cpu
def test_tensors_of_any_strides_keep_their_order_on_the_way_to_the_device(device):
    # tenstorrent/tt-xla#3607
    turned = torch.arange(6, dtype=torch.int16).reshape(3, 2).t().to(device)
    stepped = torch.arange(10.0)[1::3].to(device)
    last = torch.arange(12.0).view(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    return turned, turned + 0, stepped * 2, last.to(device) + 0


@as_on_the_cpu
def test_strides_that_a_program_asks_for_are_eagers(device):
    # pytorch/xla#5486
    x = torch.zeros(2, 3, 4).to(device)
    y = x.transpose(1, 2)
    said = [(t.stride(), t.is_contiguous(), t.storage_offset()) for t in (x, y, y.contiguous())]
    return said, torch.log_softmax(y, -1), y.contiguous().view(2, 12)


@as_on_the_cpu
def test_printing_a_tensor_changes_nothing_and_a_condition_sees_its_value(device):
    # pytorch/xla#5721, pytorch/xla#1984
    x, shown = torch.zeros(2, device=device), []
    for _ in range(3):
        x += 1
        shown.append(f"{x}".split(", device")[0].rstrip(")"))
        if x[0] == 2:
            x *= 10
    number = repr(torch.tensor(3, device=device))[:8]
    return x, shown, number, f"{torch.tensor(1.5, device=device):.2f}", len(x)


@as_on_the_cpu
def test_a_tensors_type_has_a_name_and_takes_a_dtype(device):
    # pytorch/xla#4046
    t = torch.zeros(2, device=device)
    parameters = torch.nn.ParameterDict({"a": torch.nn.Parameter(t)})
    sync()
    return t.type().rpartition(".")[2], "a" in repr(parameters), t.type(torch.int32)
