"""Four more models that training is measured with.

Small convolutions, depthwise ones, many short layers, a recurrent net.
"""

import torch
from torch import nn

__all__ = ["DenseNet", "Labels", "Recurrent", "mobilenet", "resnet18"]


class Labels(nn.Module):
    """A model of transformers as a plain function of images to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 3, size, size] to [batch, 10]."""
        logits: torch.Tensor = self.model(x).logits
        return logits


def resnet18() -> nn.Module:
    """ResNet-18 as for ImageNet: a 7x7 convolution and a pool in front."""
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
    config.num_labels = 10
    return Labels(ResNetForImageClassification(config))


def mobilenet() -> nn.Module:
    """MobileNetV2, whose 3x3 convolutions are depthwise."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config()
    config.num_labels = 10
    return Labels(MobileNetV2ForImageClassification(config))


class _Dense(nn.Module):
    """Its input and 32 new channels, side by side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 128, 1, bias=False)),
            *(nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 32, 3, padding=1, bias=False)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, c, h, w] to [batch, c + 32, h, w]."""
        return torch.cat([x, self.layers(x)], 1)


class DenseNet(nn.Sequential):
    """DenseNet-121 (Huang et al., 2017): blocks of 6, 12, 24 and 16 layers."""

    def __init__(self) -> None:
        stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        layers: list[nn.Module] = [stem, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for count in (6, 12, 24, 16):
            for _ in range(count):
                layers.append(_Dense(channels))
                channels += 32
            if count != 16:
                halves = nn.Conv2d(channels, channels // 2, 1, bias=False)
                layers += [nn.BatchNorm2d(channels), nn.ReLU(), halves, nn.AvgPool2d(2)]
                channels //= 2
        layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers, nn.Linear(channels, 10))


class Recurrent(nn.Module):
    """Two LSTM layers of 256 over 64 steps, and a layer on the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(256, 256, 2, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 64, 256] to [batch, 10]."""
        scores: torch.Tensor = self.head(self.lstm(x)[0][:, -1])
        return scores
