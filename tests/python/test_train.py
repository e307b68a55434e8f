"""Models train on the device with eager's losses, in one program, without a fallback."""

import math

import pytest
import torch
from eager import assert_equal
from loops import OPTIMIZERS, Loop
from torch import nn
from torch.nn import functional as F

import torch_pjrt


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_losses_are_eagers(name, device):
    ours, eager = Loop(device, OPTIMIZERS[name], 13), Loop("cpu", OPTIMIZERS[name], 13)
    got, want = [], []
    for _ in range(8):
        got.append(ours.step())
        torch_pjrt.sync()
        want.append(eager.step())
    torch.testing.assert_close(
        torch.stack([x.cpu() for x in got]), torch.stack(want), rtol=1e-4, atol=1e-5
    )


class Convolutions(nn.Module):
    """Images: convolution, batch norm, pooling, dropout-free."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, stride=2, groups=2), nn.GroupNorm(2, 8), nn.GELU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
        )  # fmt: skip

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.body(x.view(-1, 3, 8, 8)), y % 4, label_smoothing=0.1)


class Attention(nn.Module):
    """Tokens: embedding, a transformer layer, tied output weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(16, 12)
        self.layer = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(12)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        tokens = (x.view(-1, 192)[:, :7].abs() * 100).long() % 16
        mask = nn.Transformer.generate_square_subsequent_mask(7, device=x.device)
        h = self.norm(self.layer(self.embed(tokens), src_mask=mask, is_causal=True))
        return F.cross_entropy((h @ self.embed.weight.t()).flatten(0, 1), tokens.flatten())


class Recurrent(nn.Module):
    """Sequences: an LSTM and a GRU cell."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 10, batch_first=True)
        self.cell = nn.GRUCell(10, 5)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.cell(self.lstm(x.view(-1, 16, 12))[0][:, -1])
        return F.mse_loss(h.sum(1), y.float() / 4) + F.smooth_l1_loss(h, h.detach() + 0.3)


class Autoencoder(nn.Module):
    """Down and up: transposed convolution, sigmoid, binary cross entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 4, 2, stride=2)
        self.up = nn.ConvTranspose2d(4, 3, 2, stride=2)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.view(-1, 3, 8, 8)
        z = F.interpolate(F.leaky_relu(self.down(x), 0.1), scale_factor=1.0, mode="nearest")
        return F.binary_cross_entropy_with_logits(self.up(z), x.sigmoid()) + z.abs().mean() * 0.01


class Residual(nn.Module):
    """Images: residual blocks with batch norm, deep enough to amplify what is rounded."""

    def __init__(self) -> None:
        super().__init__()
        convs = [nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in [(3, 8)] + 7 * [(8, 8)]]
        self.convs, self.head = nn.ModuleList(convs), nn.Linear(8, 10)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8) for _ in convs])

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.norms[0](self.convs[0](x.view(-1, 3, 8, 8))))
        for conv, norm in zip(self.convs[1:], self.norms[1:], strict=True):
            h = F.relu(h + norm(conv(h)))
        return F.cross_entropy(self.head(h.mean((2, 3))), y)


MODELS = {m.__name__: m for m in (Convolutions, Attention, Recurrent, Autoencoder)}


def train(
    make, device, steps: int = 6, dtype: torch.dtype = torch.float32
) -> tuple[list[torch.Tensor], nn.Module]:
    torch.manual_seed(0)
    model = make().to(device, dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, y = torch.randn(6, 192).to(device, dtype), torch.randint(0, 8, (6,)).to(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.loss(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.detach())
        if device != "cpu":
            torch_pjrt.sync()
    return losses, model


@pytest.mark.parametrize("name", MODELS)
def test_model_trains_with_eagers_losses_in_one_program(name, device, compiles):
    with compiles() as seen:
        ours, model = train(MODELS[name], device)
    eager, plain = train(MODELS[name], "cpu")
    assert (seen.count, seen.cuts, seen.fallbacks) == (1, 0, ())
    torch.testing.assert_close(
        torch.stack([x.cpu() for x in ours]), torch.stack(eager), rtol=1e-3, atol=1e-4
    )
    assert ours[-1].item() < ours[0].item()
    for a, b in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-3)


# The deepest and the one of other layers; the rest of them at night.
IN_FLOAT64 = ["Residual", "Attention"]
IN_FLOAT64 += [pytest.param(m, marks=pytest.mark.nightly) for m in MODELS if m != "Attention"]


@pytest.mark.parametrize("name", IN_FLOAT64)
def test_float64_losses_are_eagers_to_the_last_digits(name, device):
    """Float32 rounds, and a rounding may flip a ReLU: docs/design/0005-losses-in-float32.md."""
    make = MODELS.get(name, Residual)
    ours, eager = (train(make, where, 10, torch.float64)[0] for where in (device, "cpu"))
    torch.testing.assert_close(
        torch.stack([x.cpu() for x in ours]), torch.stack(eager), rtol=1e-12, atol=1e-12
    )


def test_training_resumes_from_a_file(device, tmp_path):
    def make() -> Loop:
        return Loop(device, OPTIMIZERS["adam"], 13)

    whole, first = make(), make()
    want = [whole.step() for _ in range(4)][-1]
    for _ in range(2):
        first.step()
    torch.save([first.model.state_dict(), first.optimizer.state_dict()], tmp_path / "state")
    second = make()
    model, optimizer = torch.load(tmp_path / "state", map_location=device)
    second.model.load_state_dict(model)
    second.optimizer.load_state_dict(optimizer)
    got = [second.step() for _ in range(2)][-1]
    assert_equal(got, want.cpu())


def test_evaluation_between_steps_changes_nothing(device):
    def run(look: bool) -> list[float]:
        loop = Loop(device, OPTIMIZERS["momentum"], 13)
        losses = []
        for _ in range(3):
            losses.append(loop.step())
            if look:
                loop.model.eval()
                with torch.no_grad():
                    assert math.isfinite(loop.model(loop.x).sum().item())
                loop.model.train()
        return [x.item() for x in losses]

    assert run(True) == pytest.approx(run(False), rel=1e-5)


def test_digits_are_learned(device, compiles):
    datasets = pytest.importorskip("sklearn.datasets")
    data = datasets.load_digits()
    x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    with compiles() as seen:
        for _ in range(6):
            for images, labels in zip(x[:1500].split(100), y[:1500].split(100), strict=True):
                optimizer.zero_grad()
                F.cross_entropy(model(images.to(device)), labels.to(device)).backward()
                optimizer.step()
                torch_pjrt.sync()
    with torch.no_grad():
        right = (model(x[1500:].to(device)).argmax(1).cpu() == y[1500:]).float().mean().item()
    assert (seen.count, seen.fallbacks) == (1, ())
    assert right > 0.85
