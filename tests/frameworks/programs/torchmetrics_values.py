"""torchmetrics: metrics whose state is on the device."""

import torch
from torchmetrics import MeanMetric, MeanSquaredError, MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)


def run(device, folder):
    metrics = MetricCollection(
        {
            "accuracy": MulticlassAccuracy(4),
            "f1": MulticlassF1Score(4, average="weighted"),
            "confusion": MulticlassConfusionMatrix(4),
        }
    ).to(device)
    error, mean = MeanSquaredError().to(device), MeanMetric().to(device)
    torch.manual_seed(9)
    for _ in range(3):
        guess, truth = torch.randn(16, 4), torch.randint(0, 4, (16,))
        metrics.update(guess.to(device), truth.to(device))
        error.update(guess[:, 0].to(device), guess[:, 1].to(device))
        mean.update(guess.mean().to(device))
    found = {k: v.tolist() for k, v in metrics.compute().items()}
    return found | {"error": error.compute().item(), "mean": mean.compute().item()}
