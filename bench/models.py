"""The models that training is measured with.

An MLP, a ResNet-18 for small images, a GPT, and those of more_models.py.
"""

from collections.abc import Callable

import more_models
import torch
from drift import network
from torch import nn
from torch.nn import functional as F

__all__ = ["MODELS", "Training"]


class Block(nn.Module):
    """A transformer's block: attention, then two layers with GELU between."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, time, width] to the same."""
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).split(c, 2)
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        out: torch.Tensor = x + self.narrow(F.gelu(self.wide(self.norm2(x))))
        return out


class GPT(nn.Module):
    """Six blocks over 512 tokens."""

    def __init__(self, width: int = 384, heads: int = 6) -> None:
        super().__init__()
        self.tokens, self.places = (
            nn.Embedding(512, width),
            nn.Parameter(torch.randn(128, width) * 0.02),
        )
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(6)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 512, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """[batch, time] of tokens to [batch, time, 512] of logits."""
        y = self.blocks(self.tokens(ids) + self.places[: ids.shape[1]])
        logits: torch.Tensor = self.head(self.norm(y))
        return logits


class Training:
    """A model with its optimizer and four batches; `step(i)` records one step."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Callable[..., torch.optim.Optimizer],
        batches: list[tuple[torch.Tensor, torch.Tensor]],
        device: str,
    ) -> None:
        self.model = model.to(device)
        self.optimizer = optimizer(self.model.parameters())
        self.batches, self.device = batches, device

    def batch(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Batch `i % 4` on the device."""
        x, y = (t.to(self.device) for t in self.batches[i % 4])
        return x, y

    def step(self, i: int) -> torch.Tensor:
        """The loss of batch `i % 4`, a 0-d tensor; nothing is synced."""
        return self.on(*self.batch(i))

    def on(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """One step on a batch; nothing is synced."""
        self.optimizer.zero_grad(set_to_none=True)
        out = self.model(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        self.optimizer.step()
        return loss


def mlp(device: str) -> Training:
    """256-512-512-10, batches of 128, SGD."""
    layers = nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    batches = [(torch.randn(128, 256), torch.randint(0, 10, (128,))) for _ in range(4)]
    return Training(nn.Sequential(*layers), lambda p: torch.optim.SGD(p, lr=0.01), batches, device)


def resnet(device: str) -> Training:
    """ResNet-18 on batches of 32 images of 32x32, SGD with momentum."""
    batches = [(torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))) for _ in range(4)]
    return Training(
        network(64), lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), batches, device
    )


def gpt(device: str) -> Training:
    """Batches of 8 sequences of 128 tokens, AdamW."""
    ids = [torch.randint(0, 512, (8, 129)) for _ in range(4)]
    batches = [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in ids]
    return Training(GPT(), lambda p: torch.optim.AdamW(p, lr=3e-4), batches, device)


def classifies(make: Callable[[], nn.Module], *sizes: int) -> Callable[[str], Training]:
    """Training of a classifier on batches of those sizes, SGD with momentum."""

    def training(device: str) -> Training:
        batches = [(torch.randn(*sizes), torch.randint(0, 10, sizes[:1])) for _ in range(4)]
        return Training(
            make(), lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), batches, device
        )

    return training


MODELS: dict[str, Callable[[str], Training]] = {
    "mlp": mlp,
    "gpt": gpt,
    "resnet": resnet,
    "resnet18": classifies(more_models.resnet18, 8, 3, 64, 64),
    "densenet": classifies(more_models.DenseNet, 8, 3, 64, 64),
    "mobilenet": classifies(more_models.mobilenet, 8, 3, 64, 64),
    "lstm": classifies(more_models.Recurrent, 32, 64, 256),
}
