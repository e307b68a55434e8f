"""Training of whole models, compiled, is their training uncompiled: forward, backward, optimizer.

In float64, dropout included. Two families stand for the others in the daily suite; `make nightly`
takes them all (dynamo needs some ten seconds a model).
"""

import os

import pytest
import torch
from eager import moved
from torch import nn

import torch_pjrt

os.environ["HF_HUB_OFFLINE"] = "1"  # configurations and random weights: nothing is downloaded

from model_zoo import MODELS, Model

DAILY = ("lstm", "vit")


def with_dropout(net: nn.Module) -> nn.Module:
    """Everything that may drop, drops."""
    for m in net.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.1
        for name in ("attention_dropout", "dropout", "dropout_prob"):
            if isinstance(vars(m).get(name), float):
                setattr(m, name, 0.1)
    return net


def train(model: Model, compiled: bool) -> list[torch.Tensor]:
    """Three steps: losses, then gradients and weights and buffers as they are at the end."""
    torch.manual_seed(0)
    net = with_dropout(model.make()).double().train().to("xla")
    if hasattr(net, "set_experts_implementation"):  # the default's grouped_mm takes no float64
        net.set_experts_implementation("batched_mm")
    batch = {k: v.double() if v.is_floating_point() else v for k, v in model.batch().items()}
    batch = moved(batch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, eps=1e-5)
    forward = torch.compile(lambda b: model.loss(net, b)) if compiled else None
    torch.manual_seed(1)
    out = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = forward(batch) if forward else model.loss(net, batch)
        loss.backward()
        optimizer.step()
        torch_pjrt.sync()
        out.append(loss.detach().cpu())
    grads = [p.grad for p in net.parameters() if p.grad is not None]
    return out + [t.detach().cpu() for t in (*grads, *net.parameters(), *net.buffers())]


@pytest.mark.parametrize(
    "name", [n if n in DAILY else pytest.param(n, marks=pytest.mark.nightly) for n in MODELS]
)
def test_training_compiled_is_training_uncompiled(name):
    torch._dynamo.reset()
    want, got = train(MODELS[name], False), train(MODELS[name], True)
    assert len(want) == len(got)
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-6)
