"""A small training loop and every optimizer it is tried with."""

import torch
from torch import nn

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd_weight_decay": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
    "adam_foreach": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "rmsprop_momentum": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, centered=True),
}


class Loop:
    """A small MLP in training; a width of its own, so that no other test has its programs."""

    def __init__(self, device, make, width: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(9, width), nn.ReLU(), nn.Linear(width, 5)).to(device)
        self.optimizer = make(self.model.parameters())
        self.x = torch.randn(11, 9).to(device)
        self.y = torch.randint(5, (11,)).to(device)

    def step(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
