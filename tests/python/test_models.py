"""Families of models as users have them train and generate on the device with eager's numbers."""

import copy
import os

import pytest
import torch
from eager import moved

os.environ["HF_HUB_OFFLINE"] = "1"  # configurations and random weights: nothing is downloaded

from model_zoo import MODELS, Model

TOLERANCE = 1e-3


def made(model: Model) -> torch.nn.Module:
    torch.manual_seed(0)
    return model.make()


def train(model: Model, net: torch.nn.Module, batch) -> list[list[torch.Tensor]]:
    """Two steps; gives the losses, the first gradients and the weights. Prints each loss."""
    # An epsilon above the noise: a gradient that should be zero must not become a full step.
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-5)
    losses, gradients = [], []
    for _ in range(2):
        optimizer.zero_grad()
        loss = model.loss(net, batch)
        loss.backward()
        gradients = gradients or [p.grad for p in net.parameters() if p.grad is not None]
        optimizer.step()
        losses.append(torch.tensor(loss.item()))
    return [losses, gradients, [p.detach() for p in net.parameters()]]


@pytest.mark.parametrize("name", MODELS)
def test_two_steps_of_training_give_eagers_numbers_and_cut_nowhere(name, device, compiles, capsys):
    model = MODELS[name]
    net, batch = made(model).train(), model.batch()
    ours = copy.deepcopy(net).to(device)
    with compiles() as seen:
        got = train(model, ours, moved(batch))
    want = train(model, net, batch)
    with capsys.disabled():
        print(f"\n  {name}: {seen.count} programs, {seen.cuts} cuts (the losses), ", end="")
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close([x.cpu() for x in a], b, rtol=TOLERANCE, atol=TOLERANCE)
    assert seen.fallbacks == ()
    assert seen.cuts == 2


@pytest.mark.parametrize("name", [n for n, m in MODELS.items() if m.prompt])
def test_greedy_generation_with_a_cache_gives_eagers_tokens(
    name, device, compiles, capsys, nightly
):
    model = MODELS[name]
    # A cache that grows makes each token a program of its own.
    count = 20 if nightly or "cache_implementation" in model.generate else 4
    net, prompt = made(model).eval(), model.prompt()
    ours = copy.deepcopy(net).to(device)
    options = {"max_new_tokens": count, "do_sample": False, "use_cache": True, **model.generate}
    with compiles() as seen:
        got = ours.generate(**moved(prompt), **options).cpu()
    want = net.generate(**prompt, **options)
    with capsys.disabled():
        print(f"\n  {name}: {seen.count} programs, {seen.cuts} cuts for {count} tokens, ", end="")
    assert want.shape[1] >= count
    assert torch.equal(got, want)
    assert seen.fallbacks == ()
    # transformers reads twice a token (is it the end? are all sentences done?) and a little before.
    assert seen.cuts <= 2 * count + 8


def test_every_family_is_here():
    assert len(MODELS) == 12
