"""Layers, gradients, autocast, checkpoints and loops as users write them."""

import copy

import pytest
import torch
from both import as_on_the_cpu, in_both_modes, sync
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import torch_pjrt


@as_on_the_cpu
def test_the_largest_of_each_bag_is_found_with_and_without_gradients(device):
    # pytorch/xla#7588
    w = torch.tensor([[-1.0, -2.0], [-3.0, -0.5], [-0.1, -9.0]], device=device)
    words, bags = torch.tensor([0, 1, 2, 1], device=device), torch.tensor([0, 2], device=device)
    plain = F.embedding_bag(words, w, bags, mode="max")
    return plain, F.embedding_bag(words, w.clone().requires_grad_(), bags, mode="max")


@as_on_the_cpu
def test_a_bag_of_words_has_gradients(device):
    # pytorch/xla#2215
    bag = nn.EmbeddingBag(4, 2, mode="sum").to(device)
    bag(
        torch.tensor([1, 3, 1], device=device), torch.tensor([0, 2], device=device)
    ).sum().backward()
    return bag.weight.grad


@as_on_the_cpu
def test_a_convolutional_net_predicts_the_same(device):
    # pytorch/xla#8625, pytorch/xla#8617
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.SiLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    for norm in (net[1], net[4]):
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        return net.eval().to(device)(x.to(device))


@as_on_the_cpu
def test_a_second_convolution_of_another_dilation_has_gradients_of_its_own(device):
    # pytorch/xla#1017
    def gradient(dilation):
        x = torch.ones(1, 1, 7, 7, device=device, requires_grad=True)
        w = torch.ones(1, 1, 2, 2, device=device, requires_grad=True)
        F.conv2d(x, w, stride=3, dilation=dilation).sum().backward()
        return x.grad.cpu().tolist()

    return gradient(1), gradient(2)


@as_on_the_cpu
def test_a_gradient_through_parts_of_a_view_has_a_gradient(device):
    # pytorch/xla#2576
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device, requires_grad=True)
    parts = torch.split((x**3).view(-1), 1)
    (first,) = torch.autograd.grad(parts, x, [torch.ones_like(p) for p in parts], create_graph=True)
    first.sum().backward()
    return first.detach(), x.grad


@as_on_the_cpu
def test_a_grouped_convolution_has_second_gradients(device):
    # pytorch/xla#911
    torch.manual_seed(3)
    layer, x = nn.Conv1d(4, 6, 3, groups=2), torch.rand(2, 4, 6)
    wanted = [x.to(device).requires_grad_(), *layer.to(device).parameters()]
    y = layer(wanted[0])
    first = torch.autograd.grad(y, wanted, y, create_graph=True)
    return torch.autograd.grad(y.sum() + sum(g.sum() for g in first), wanted)


@as_on_the_cpu
def test_batch_norm_after_a_convolution_under_autocast_keeps_float32_statistics(device):
    # pytorch/xla#8496
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4))
    x = torch.randn(2, 3, 5, 5).to(device)
    net.to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        inner = net[0](x)
        y = net[1](inner)
    y.float().sum().backward()
    dtypes = [t.dtype for t in (inner, net[0].weight.grad, net[1].running_var)]
    return dtypes, net[1].num_batches_tracked, y.bfloat16()


@as_on_the_cpu
def test_autocast_casts_products_and_not_where_it_is_off(device):
    # pytorch/pytorch#115900, pytorch/xla#5570
    layer, x = nn.Linear(4, 2).to(device), torch.ones(3, 4, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = layer(x)
        loss, on = F.mse_loss(y, torch.zeros_like(y)), torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False):
            off = layer(x)
    loss.float().backward()
    grad = layer.weight.grad
    return [t.dtype for t in (y, loss, off, layer(x), grad)], on, grad.isfinite().all()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_activations_give_the_same_gradients(device, reentrant):
    # aws-neuron/aws-neuron-sdk#1317
    layer = nn.Linear(3, 3).to(device)
    x = torch.ones(2, 3, device=device, requires_grad=True)
    plain = torch.autograd.grad(torch.sigmoid(layer(x)).sum(), layer.weight)[0]
    checkpoint(lambda t: torch.sigmoid(layer(t)), x, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close(layer.weight.grad.cpu(), plain.cpu())


@in_both_modes
def test_a_checkpoint_drops_in_the_second_pass_what_it_dropped_in_the_first():
    # pytorch/xla#4690
    x = torch.ones(64, device="xla", requires_grad=True)
    y = checkpoint(lambda t: F.dropout(t * 1, 0.5, True), x, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())
    assert 0 < (x.grad == 0).sum().item() < 64


@as_on_the_cpu
def test_training_goes_on_where_a_checkpoint_left_it(device):
    # pytorch/xla#4482, pytorch/xla#6546
    def fresh():
        model = nn.Linear(1, 1, bias=False).to(device)
        return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(model, optimizer):
        optimizer.zero_grad()
        (model(torch.ones(1, 1, device=device)) - 1).pow(2).sum().backward()
        optimizer.step()
        sync()

    first, second = fresh(), fresh()
    nn.init.zeros_(first[0].weight)
    step(*first)
    weights = {k: v.cpu().clone() for k, v in first[0].state_dict().items()}
    state = copy.deepcopy(first[1].state_dict())
    step(*first)
    second[0].load_state_dict(weights)
    second[1].load_state_dict(state)
    step(*second)
    return first[0].weight.detach(), second[0].weight.detach(), second[1].state_dict()["state"]


@as_on_the_cpu
def test_deep_copies_are_apart_and_shallow_ones_share(device):
    # pytorch/xla#1018
    t = torch.tensor([1.0, 2.0], device=device) + 1
    deep, shallow = copy.deepcopy(t).add_(100), copy.copy(t).add_(5)
    layer = nn.Linear(2, 1).to(device)
    kept = copy.deepcopy(layer)
    nn.init.zeros_(layer.weight)
    sync()
    w = kept.weight
    return (
        t,
        deep,
        shallow,
        w.abs().sum().item() > 0,
        w.requires_grad,
        w.device == layer.weight.device,
    )


@as_on_the_cpu
def test_a_loop_without_a_sync_trains(device):
    # aws-neuron/aws-neuron-sdk#1316
    w = torch.zeros(1, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.25)
    for _ in range(20):
        optimizer.zero_grad()
        (w - 2).pow(2).sum().backward()
        optimizer.step()
    return w.detach()


def test_a_loaders_worker_may_refer_to_a_model_on_the_device(device):
    # pytorch/xla#4131, pytorch/xla#6815
    model = nn.Linear(1, 1, bias=False).to(device)
    nn.init.constant_(model.weight, 2.0)
    torch_pjrt.sync()

    def collate(rows):
        assert model is not None  # held, not used
        return torch.tensor(rows, dtype=torch.float32).view(-1, 1)

    loader = torch.utils.data.DataLoader(
        list(range(8)), batch_size=2, num_workers=1, collate_fn=collate, timeout=60
    )
    assert sum(model(b.to(device)).sum().item() for b in loader) == 2 * sum(range(8))
