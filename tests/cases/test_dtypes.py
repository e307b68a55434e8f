"""Results have eager's dtype, and are computed in it."""

import torch
from both import as_on_the_cpu, sync
from torch.nn import functional as F


@as_on_the_cpu
def test_tensors_of_two_dtypes_are_joined_in_the_wider(device):
    # pytorch/xla#3608
    whole = torch.ones(2, 2, dtype=torch.int64, device=device)
    return torch.cat([whole, torch.full((2, 1), 0.5, device=device)], dim=1)


@as_on_the_cpu
def test_small_integers_are_added_and_multiplied_in_64_bits(device):
    # pytorch/xla#863
    signed = torch.tensor([[100, 3], [-7, 90]], dtype=torch.int8, device=device)
    unsigned = torch.tensor([200, 2, 2], dtype=torch.uint8, device=device)
    return signed.prod(1), signed.sum(), unsigned.cumprod(0), unsigned.sum()


@as_on_the_cpu
def test_a_complex_tensor_keeps_its_imaginary_part_in_a_division(device):
    # pytorch/xla#4519
    return torch.tensor([3 + 4j, -2j], device=device) / 2


@as_on_the_cpu
def test_functions_of_floats_take_integers(device):
    # pytorch/xla#3717, pytorch/xla#6216
    i = torch.tensor([3, 0], device=device)
    found = [f(i) for f in (torch.tan, torch.erf, torch.sqrt, torch.sigmoid, torch.log1p)]
    return found, torch.atan2(i, torch.tensor([4, 1], device=device))


@as_on_the_cpu
def test_a_python_float_widens_nothing(device):
    # pytorch/xla#3229, pytorch/xla#4574
    a = torch.tensor([3.0, 5.0], device=device)
    whole = [a / 2.0, a * 1e-3, 1.0 - a, a + 2, torch.where(a > 4, a, 0.5)]
    return whole, a.to(torch.bfloat16) * 0.5


@as_on_the_cpu
def test_a_double_is_a_double(device):
    # pytorch/xla#1741
    largest = torch.tensor(2147483647, device=device).to(torch.double)
    near_one = torch.tensor(1.0, dtype=torch.double, device=device) + 1e-12
    return (largest < 2147483647.9).item(), (largest + 0.25).item(), near_one.item()


@as_on_the_cpu
def test_where_promotes_numbers_0d_tensors_and_tensors_each_in_their_way(device):
    # pytorch/xla#3105, pytorch/xla#6479
    c = torch.tensor([True, False], device=device)
    f, u = torch.tensor([0.5, 0.5], device=device), torch.tensor([7, 8], device=device)
    wide = torch.tensor([1.0, 2.0], dtype=torch.float64, device=device)
    narrow = torch.where(c, u.to(torch.uint8), 1), torch.where(c, f, -wide[0])
    return narrow, torch.where(c, f, wide)


@as_on_the_cpu
def test_an_index_keeps_the_dtype_and_bools_stay_bools(device):
    # pytorch/xla#592
    a = torch.tensor([9, 8, 7], dtype=torch.uint8, device=device)
    b = torch.tensor([True, False], device=device)
    return a[torch.tensor([2, 0], device=device)], b & a[:2].bool(), b + b


@as_on_the_cpu
def test_an_image_of_doubles_is_resized_in_doubles(device):
    # pytorch/xla#7095, pytorch/xla#7111
    x = torch.arange(4.0, dtype=torch.float64, device=device).view(1, 1, 2, 2)
    return F.interpolate(x, size=(3, 3), mode="bilinear", align_corners=True)


@as_on_the_cpu
def test_to_takes_device_and_dtype_together(device):
    # pytorch/xla#9583
    t = torch.tensor([1.7, -1.7]).to(device, torch.int32)
    u = torch.tensor([1, 0]).to(t.to(torch.float16))
    w = torch.nn.Linear(2, 2).to(device=device, dtype=torch.bfloat16).weight
    return t, u, w.dtype, w.device.type == u.device.type == device


@as_on_the_cpu
def test_a_half_multiplied_in_place_by_a_double_stays_a_half_in_the_next_program(device):
    # pytorch/xla#7084
    h = torch.tensor([1.0, 2.0], dtype=torch.float16, device=device)
    h.mul_(torch.tensor(7, dtype=torch.double, device=device))
    sync()
    return h, h + torch.ones(2, dtype=torch.float16, device=device), h.cpu().numpy().itemsize


@as_on_the_cpu
def test_largest_places_of_a_bf16_softmax_are_found(device):
    # pytorch/xla#2525
    rows = [[0.0, 3.0, 1.0], [2.0, 0.0, -1.0]]
    p = torch.softmax(torch.tensor(rows, dtype=torch.bfloat16, device=device), -1)
    return p.argmax(-1), p.max(-1).indices, p.topk(2).indices


@as_on_the_cpu
def test_large_integers_are_divided_exactly(device):
    # pytorch/xla#1657
    t = torch.tensor([7 * 10**16, -7 * 10**16 + 1, 2**31 + 5], device=device)
    return t // 3, t % 7, torch.div(t, 3, rounding_mode="trunc")
