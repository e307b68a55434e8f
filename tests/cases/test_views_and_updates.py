"""Views share memory and updates in place reach it, over syncs and donated buffers."""

import io

import torch
from both import as_on_the_cpu, refused, sync


@as_on_the_cpu
def test_a_view_made_before_a_sync_and_its_base_see_each_others_writes(device):
    # pytorch/xla#3291
    base = torch.zeros(2, 3, device=device)
    column = base.view(6, 1)
    sync()
    column[4, 0] = 7
    seen = base.tolist()
    sync()
    base[0, 0] = 5
    return seen, column


@as_on_the_cpu
def test_updates_of_data_reach_views_and_another_data_does_not(device):
    # pytorch/xla#3392
    a, b, c = (torch.zeros(6, device=device) for _ in range(3))
    views = [t.view(2, 3) for t in (a, b, c)]
    a.data.add_(1)
    b.data += 2
    c.data = c.data + 3
    sync()
    return views, c


@as_on_the_cpu
def test_a_copy_from_the_cpu_into_a_stepped_slice_casts_and_reaches_the_base(device):
    # pytorch/xla#1616
    target = torch.zeros(5, dtype=torch.int64, device=device)
    target[::2].copy_(torch.arange(1.5, 6)[::2])
    return target


@as_on_the_cpu
def test_an_update_of_an_expanded_tensor_is_refused_and_of_a_slice_done(device):
    # pytorch/xla#8917
    row = torch.arange(6, device=device)
    row[-2:] += 10
    grid = torch.arange(4, device=device).expand(3, -1)
    return row, refused(lambda: grid[:, -2:].add_(10)), grid


@as_on_the_cpu
def test_as_strided_of_a_view_counts_from_the_start_of_its_memory(device):
    # pytorch/xla#7859
    return torch.arange(10, 15, device=device)[2:].as_strided((4,), (1,), 0)


@as_on_the_cpu
def test_a_selected_element_keeps_its_place_as_its_shape_changes(device):
    # pytorch/xla#7859
    x = torch.tensor([3.0, 8.0, -1.0], device=device)
    chunks = torch.stack([c.squeeze() for c in x.chunk(3)])
    return [x[i].unsqueeze(0) for i in range(3)], x[2, None], chunks


@as_on_the_cpu
def test_a_buffer_written_a_slot_a_step_keeps_every_step(device):
    # pytorch/xla#4189
    history, w = torch.zeros(4, device=device), torch.ones(2, device=device)
    for i in range(4):
        w = w * 2
        history[i] = w.sum().detach()
        sync()
    return history


@as_on_the_cpu
def test_a_resized_tensor_takes_a_copy_from_the_cpu(device):
    # pytorch/xla#2881
    t = torch.empty(0, dtype=torch.int64, device=device)
    return t.resize_(3).copy_(torch.tensor([4, 5, 6]))


@as_on_the_cpu
def test_a_view_of_no_rows_can_be_read_and_joined(device):
    # pytorch/xla#607
    v = torch.arange(24.0, device=device).view(2, 3, 4)
    none = v[:, :, 1][:, 1:1]
    return none, torch.cat([none, v[:, 0]], dim=1)


@as_on_the_cpu
def test_an_update_of_the_transposed_reaches_the_base(device):
    # pytorch/xla#5179
    a = torch.arange(6.0, device=device).reshape(2, 3)
    b = a.t().mul_(2.0)
    sync()
    return a, b


@as_on_the_cpu
def test_saving_an_updated_tensor_leaves_its_old_value_to_who_needs_it(device):
    # pytorch/xla#8422
    a, b = torch.tensor([1], device=device), torch.tensor([2], device=device)
    sync()
    c = a + b
    b.add_(10)
    torch.save(b.cpu(), io.BytesIO())  # computes b alone
    return a, b, c


@as_on_the_cpu
def test_the_same_sum_in_place_and_not_in_place_are_two_programs(device):
    # pytorch/xla#8464
    a, b = torch.tensor([1], device=device), torch.tensor([2], device=device)
    sync()
    b.add_(a)
    sync()
    c = b + a
    sync()
    return a, b, c


@as_on_the_cpu
def test_detached_aliases_follow_an_update_over_a_sync_and_clones_do_not(device):
    # pytorch/xla#8422, pytorch/xla#3291
    w = torch.ones(2, 2, device=device, requires_grad=True)
    alias, flat, clone = w.detach(), w.detach().view(-1), w.detach().clone()
    sync()
    with torch.no_grad():
        w.mul_(5)
    sync()
    return alias, flat, clone


@as_on_the_cpu
def test_values_that_a_list_holds_stay_as_their_name_moves_on(device):
    # pytorch/xla#7585
    x, log = torch.zeros(2, device=device), []
    for _ in range(4):
        log.append(x)
        x = x + 1
        sync()
    return log, x
