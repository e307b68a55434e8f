"""A small MLP on random data, to see what it needs elsewhere.

python -m torch_pjrt fit examples/mlp.py --topology v5e:2x2
"""

import torch
from torch import nn

import torch_pjrt


def main() -> None:
    """Five steps."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10)
    ).to("xla")  # fmt: skip
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    images = torch.randn(256, 784).to("xla")
    labels = torch.randint(0, 10, (256,)).to("xla")
    for _ in range(5):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        opt.step()
        torch_pjrt.sync()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
