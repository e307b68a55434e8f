"""A fixed-shape loop is one program from step 1 on, for every optimizer, and is never cut."""

import math

import pytest
import torch
from loops import OPTIMIZERS, Loop
from torch import nn

import torch_pjrt


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_one_program_from_step_one_on(name, device, compiles):
    loop = Loop(device, OPTIMIZERS[name], 13)
    losses = []
    with compiles() as first:
        losses.append(loop.step())
        torch_pjrt.sync()
    with compiles() as later:
        for _ in range(4):
            losses.append(loop.step())
            torch_pjrt.sync()
    # Another optimizer of this table may have had the same program already.
    assert (first.count <= 1, later.count) == (True, 0)
    assert first.cuts + later.cuts == 0
    assert first.fallbacks + later.fallbacks == ()
    assert all(math.isfinite(x.item()) for x in losses)


def test_reading_the_loss_each_step_is_one_program_too(device, compiles):
    loop = Loop(device, OPTIMIZERS["adam"], 17)
    with compiles() as seen:
        values = [loop.step().item() for _ in range(4)]
    assert seen.count == 1
    assert seen.cuts == 4
    assert values[3] < values[0]


def test_learning_rate_schedule_compiles_nothing_new(device, compiles):
    loop = Loop(device, OPTIMIZERS["momentum"], 19)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(loop.optimizer, T_max=5)
    with compiles() as seen:
        for _ in range(5):
            loop.step()
            schedule.step()
            torch_pjrt.sync()
    assert seen.count == 1


def test_lr_of_zero_and_one_compiles_nothing_new(device, compiles):
    loop = Loop(device, OPTIMIZERS["adamw"], 21)
    with compiles() as seen:
        for lr in (0.3, 0.0, 1.0, 0.3):
            loop.optimizer.param_groups[0]["lr"] = lr
            loop.step()
            torch_pjrt.sync()
    assert seen.count == 1


def test_clipping_and_accumulating_gradients_stay_one_program(device, compiles):
    loop = Loop(device, OPTIMIZERS["adam"], 23)
    with compiles() as seen:
        for _ in range(3):
            loop.optimizer.zero_grad()
            for _ in range(2):
                nn.functional.cross_entropy(loop.model(loop.x), loop.y).backward()
            nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
            loop.optimizer.step()
            torch_pjrt.sync()
    assert (seen.count, seen.cuts, seen.fallbacks) == (1, 0, ())


def test_dropout_and_batch_norm_stay_one_program(device, compiles):
    torch.manual_seed(0)
    parts = nn.Linear(9, 15), nn.BatchNorm1d(15), nn.ReLU(), nn.Dropout(0.3), nn.Linear(15, 2)
    model = nn.Sequential(*parts).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(7, 9).to(device)
    outputs = []
    with compiles() as seen:
        for _ in range(3):
            optimizer.zero_grad()
            y = model(x)
            y.square().mean().backward()
            optimizer.step()
            outputs.append(y.detach())
            torch_pjrt.sync()
    assert (seen.count, seen.cuts, seen.fallbacks) == (1, 0, ())
    assert not torch.equal(outputs[0].cpu(), outputs[1].cpu())


def test_gradients_set_to_zero_instead_of_none(device, compiles):
    loop = Loop(device, OPTIMIZERS["sgd"], 25)
    loop.optimizer.zero_grad = lambda: [
        p.grad.zero_() for p in loop.model.parameters() if p.grad is not None
    ]
    loop.step()
    torch_pjrt.sync()
    loop.step()
    torch_pjrt.sync()
    with compiles() as seen:
        for _ in range(3):
            loop.step()
            torch_pjrt.sync()
    assert seen.count == 0


def test_new_data_each_step_compiles_nothing_new(device, compiles):
    loop = Loop(device, OPTIMIZERS["adam"], 27)
    with compiles() as seen:
        for _ in range(4):
            loop.x = torch.randn(11, 9).to(device)
            loop.y = torch.randint(5, (11,)).to(device)
            loop.step()
            torch_pjrt.sync()
    assert seen.count == 1


def test_a_last_smaller_batch_is_one_more_program(device, compiles):
    loop = Loop(device, OPTIMIZERS["sgd"], 29)
    with compiles() as seen:
        for size in (11, 11, 4, 11, 4):
            loop.x, loop.y = torch.randn(size, 9).to(device), torch.randint(5, (size,)).to(device)
            loop.step()
            torch_pjrt.sync()
    assert seen.count == 2


def test_evaluation_loop_is_one_program(device, compiles):
    loop = Loop(device, OPTIMIZERS["sgd"], 31)
    loop.model.eval()
    with compiles() as seen, torch.no_grad():
        correct = torch.zeros((), dtype=torch.int64, device=device)
        for _ in range(3):
            correct += (loop.model(loop.x).argmax(1) == loop.y).sum()
            torch_pjrt.sync()
    assert seen.count == 1
    assert 0 <= correct.item() <= 33
