"""A small GPT, fully sharded over eight CPU devices by annotation: `python examples/spmd.py`.

Prints where a weight is, losses, how many programs were compiled and what each device holds.
"""

import os

os.environ.setdefault("TORCH_PJRT_CPU_DEVICES", "8")

import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt import metrics, spmd

WORDS, WIDTH, TIME = 128, 64, 32


class Block(nn.Module):
    """Attention, then two layers with GELU between."""

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
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        out: torch.Tensor = x + self.narrow(F.gelu(self.wide(self.norm2(x))))
        return out


class GPT(nn.Module):
    """Two blocks over tokens and places."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TIME, WIDTH)
        self.blocks = nn.Sequential(Block(WIDTH, 4), Block(WIDTH, 4))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """[batch, time] of tokens to logits."""
        places = torch.arange(ids.shape[1], device=ids.device)
        out: torch.Tensor = self.head(self.blocks(self.tokens(ids) + self.places(places)))
        return out


def batch() -> torch.Tensor:
    """Counting from a random start: easy to learn."""
    start = torch.randint(WORDS, (16, 1))
    return (start + torch.arange(TIME + 1)) % WORDS


def main() -> None:
    """Trains 20 steps."""
    torch.manual_seed(0)
    mesh = spmd.Mesh(range(8), (8,), ("fsdp",))
    model = spmd.fully_shard(GPT().to("xla"), mesh)
    print(spmd.visualize(model.blocks[0].qkv.weight))  # type: ignore[index,union-attr]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(20):
        ids = batch()
        x = spmd.shard_batch(ids[:, :-1].contiguous().to("xla"), mesh)
        y = spmd.shard_batch(ids[:, 1:].contiguous().to("xla"), mesh)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).reshape(-1, WORDS), y.reshape(-1))
        loss.backward()
        optimizer.step()
        torch_pjrt.sync()
        if step % 5 == 4:
            print(
                f"step {step + 1}: loss {loss.item():.3f}, {metrics.compiles()} programs compiled"
            )
    whole = sum(p.numel() * p.element_size() for p in model.parameters())
    print(f"weights: {whole} bytes; with their optimizer state three times that")
    held = [torch_pjrt.memory(d)["live_bytes"] for d in range(8)]
    print(f"each device holds {held} bytes")


if __name__ == "__main__":
    main()
