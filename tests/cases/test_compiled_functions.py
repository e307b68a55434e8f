"""Functions under torch.compile: the same results, views, updates and random numbers."""

import pytest
import torch
from both import sync
from torch import nn
from torch.nn import functional as F


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    return lambda f: torch.compile(f, backend="openxla")


def test_a_view_that_a_compiled_function_gives_shares_its_arguments_memory(device, compiled):
    # pytorch/xla#5430
    x = torch.ones(2, 2, device=device, requires_grad=True).clone()
    compiled(lambda t: t.view(-1))(x).mul_(2)
    sync()
    assert x.tolist() == [[2.0, 2.0]] * 2


def test_updates_of_a_buffer_last_from_call_to_call(device, compiled):
    # pytorch/xla#7902, pytorch/xla#7933
    def f(a, buffer):
        buffer.copy_(buffer + a.sum())
        return torch.ops.aten.copy.default(a, a * 2)

    run, a, buffer = compiled(f), torch.tensor([1.0, 2.0], device=device), torch.zeros(1).to(device)
    for i in range(1, 4):
        result = run(a, buffer)
        assert buffer.item() == 3.0 * i
    assert (result.tolist(), a.tolist()) == ([2.0, 4.0], [1.0, 2.0])


def test_a_functional_copy_leaves_what_it_copies_to(device, compiled):
    # pytorch/xla#7902
    run = compiled(lambda a: torch.ops.aten.copy.default(a, a * 2))
    a = torch.tensor([1.0, 2.0], device=device)
    for _ in range(2):
        assert run(a).tolist() == [2.0, 4.0]
        assert a.tolist() == [1.0, 2.0]


def test_other_shapes_and_a_branch_on_a_value_give_eagers_results(device, compiled):
    # pytorch/xla#5177, pytorch/xla#7053
    def f(a):
        b = a[:, 2:] + 1
        if b.sum().item() > 5:
            b = b * 2
        return torch.cat([a[:, :2], b], 1)

    run = compiled(f)
    for a in (torch.zeros(1, 4), torch.ones(2, 5), torch.zeros(1, 4)):
        assert run(a.to(device)).tolist() == f(a).tolist()


def test_a_compiled_dropout_has_one_mask_for_both_directions(device, compiled):
    # pytorch/pytorch#90097
    x = torch.ones(64, device=device, requires_grad=True)
    y = compiled(lambda t: F.dropout(t, 0.5, True))(x)
    y.sum().backward()
    assert torch.equal(y.detach().cpu(), x.grad.cpu())
    assert 0 < (x.grad == 0).sum().item() < 64


def test_running_statistics_go_on_from_call_to_call(device, compiled):
    # pytorch/xla#5410
    x, found = torch.tensor([[0.0, 2.0], [2.0, 6.0]]), []
    for where in ("cpu", device):
        norm = nn.BatchNorm1d(2).to(where)
        run = norm if where == "cpu" else compiled(norm)
        for _ in range(2):
            run(x.to(where)).sum().backward()
        found.append([buffer.cpu() for buffer in norm.buffers()])
    torch.testing.assert_close(*found)
