"""What torchvision's classification reference and timm's train.py do, step by step.

Their packages need a torchvision built for this very torch, which is not among the tests'
requirements: the network, the loop and its parts are written here as they have them. Warm-up and
cosine schedule, mixup, label smoothing, decay for some parameters only, GradScaler, clipping,
averaged weights with buffers, accuracy by top k, the loss read at each step, save and resume.
"""

import torch
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset


class Block(torch.nn.Module):
    def __init__(self, ins, outs, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(ins, outs, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(outs)
        self.conv2 = torch.nn.Conv2d(outs, outs, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(outs)
        self.down = torch.nn.Sequential(
            torch.nn.Conv2d(ins, outs, 1, stride, bias=False), torch.nn.BatchNorm2d(outs)
        )

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.down(x))


def network():
    torch.manual_seed(20)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        torch.nn.MaxPool2d(3, 2, 1), Block(8, 8, 1), Block(8, 16, 2),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 5),
    )  # fmt: skip


def loader():
    torch.manual_seed(21)
    x = torch.randn(24, 3, 12, 12)
    return DataLoader(TensorDataset(x, x.mean((2, 3)).argmax(1)), batch_size=8)


def mixed(x, y, share):
    """Each picture with its neighbour."""
    hot = functional.one_hot(y, 5).to(x.dtype)
    return tuple(t.roll(1, 0).mul(1.0 - share).add(t.mul(share)) for t in (x, hot))


def accuracy(output, target, ks=(1, 3)):
    with torch.inference_mode():
        _, found = output.topk(max(ks), 1, True, True)
        hits = found.t().eq(target[None])
        return [hits[:k].flatten().sum(dtype=torch.float32) * (100.0 / len(target)) for k in ks]


class Training:
    def __init__(self, device):
        self.device, self.model = device, network().to(device)
        norms = [p for m in self.model.modules() if isinstance(m, torch.nn.BatchNorm2d)
                 for p in m.parameters()]  # fmt: skip
        kept = {id(p) for p in norms}
        others = [p for p in self.model.parameters() if id(p) not in kept]
        self.optimizer = torch.optim.SGD(
            [{"params": others, "weight_decay": 1e-4}, {"params": norms, "weight_decay": 0.0}],
            lr=0.1, momentum=0.9, nesterov=True,
        )  # fmt: skip
        warm = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=1)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 3)
        self.schedule = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [warm, cosine], [1])
        self.criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
        self.scaler = torch.amp.GradScaler(device, enabled=False)
        average = get_ema_multi_avg_fn(0.9)
        self.ema = AveragedModel(self.model, device, multi_avg_fn=average, use_buffers=True)

    def epoch(self, share):
        self.model.train()
        losses = []
        for step, (x, y) in enumerate(loader()):
            x, target = mixed(x.to(self.device), y.to(self.device), share)
            loss = self.criterion(self.model(x), target)
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if step % 2 == 0:
                self.ema.update_parameters(self.model)
            losses.append(loss.item())
        self.schedule.step()
        return losses

    def evaluate(self, model):
        model.eval()
        found = []
        with torch.inference_mode():
            for x, y in loader():
                y = y.to(self.device)
                found.append([a.item() for a in accuracy(model(x.to(self.device)), y)])
        return found

    def parts(self):
        return {
            "model": self.model, "optimizer": self.optimizer, "schedule": self.schedule,
            "scaler": self.scaler, "ema": self.ema,
        }  # fmt: skip


def run(device, folder):
    whole = Training(device)
    losses = whole.epoch(0.7)
    torch.save({k: v.state_dict() for k, v in whole.parts().items()}, f"{folder}/checkpoint.pth")
    rest = whole.epoch(0.8)
    again = Training(device)
    saved = torch.load(f"{folder}/checkpoint.pth", map_location="cpu")
    for name, part in again.parts().items():
        part.load_state_dict(saved[name])
    resumed = again.epoch(0.8)
    assert resumed == rest, (resumed, rest)
    return {
        "losses": losses + rest, "accuracy": whole.evaluate(whole.model),
        "averaged": whole.evaluate(whole.ema), "rate": whole.schedule.get_last_lr(),
        "running": whole.ema.module[1].running_var.tolist(),
    }  # fmt: skip
