"""Long loops keep no memory: neither nodes, nor buffers, nor programs."""

import gc
from pathlib import Path

import torch
from torch import nn

import torch_pjrt


def resident() -> int:
    """KiB of this process in memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_two_thousand_steps_change_resident_memory_by_two_percent_at_most(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(16, 32).to(device), torch.randint(10, (16,)).to(device)

    def train(steps: int) -> None:
        for i in range(steps):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            torch_pjrt.sync()
            if i % 100 == 0:
                loss.item()
        torch_pjrt.sync(wait=True)
        gc.collect()

    train(200)
    before = resident()
    train(2000)
    assert abs(resident() - before) <= 0.02 * before


def test_training_leaves_as_many_tensors_and_programs_as_it_found(device):
    model = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(4, 8).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        torch_pjrt.sync(wait=True)

    for _ in range(3):
        step()
    gc.collect()
    before = torch_pjrt._C.live_aliases(), torch_pjrt._C.programs_cached()
    for _ in range(20):
        step()
    gc.collect()
    assert (torch_pjrt._C.live_aliases(), torch_pjrt._C.programs_cached()) == before


def test_uploads_are_freed(device):
    x = torch.ones(256, 1024)
    (x.to(device) + 1).cpu()
    gc.collect()
    before = resident()
    for _ in range(100):
        (x.to(device) + 1).cpu()
    gc.collect()
    assert resident() - before < 20 * 1024  # 100 MiB of uploads went by


def test_views_and_graphs_that_nobody_reads_are_freed(device):
    x = torch.ones(8, 8, device=device)
    torch_pjrt.sync(wait=True)
    before = torch_pjrt._C.live_aliases()
    for _ in range(1000):
        y = x.t()[1:] * 2
        y[0].add_(1)
    del y
    gc.collect()
    assert torch_pjrt._C.live_aliases() == before


def test_a_chain_of_a_hundred_thousand_ops_is_freed_without_overflow(device):
    x = torch.ones((), device=device)
    for _ in range(100_000):
        x = x + 1
    del x
    assert torch.ones((), device=device).item() == 1
