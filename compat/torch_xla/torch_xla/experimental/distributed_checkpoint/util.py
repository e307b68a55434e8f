"""Optimizers before their first step."""

from typing import Any

import torch


def prime_optimizer(optimizer: torch.optim.Optimizer) -> Any:
    """Makes its state, with values that no step has changed; gives the optimizer."""
    params = [p for g in optimizer.param_groups for p in g["params"]]
    with torch.no_grad():
        before = [(p, p.detach().clone(), p.grad) for p in params]
        rates = [g.get("lr") for g in optimizer.param_groups]
        for p in params:
            p.grad = torch.zeros_like(p)
        optimizer.step()
        for p, value, grad in before:
            p.copy_(value)
            p.grad = grad
        for g, rate in zip(optimizer.param_groups, rates, strict=True):
            if rate is not None:
                g["lr"] = rate
    return optimizer
