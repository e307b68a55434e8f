"""accelerate: Accelerator(), prepare, accumulate, clipping, gather, save_state, load_state."""

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.utils.data import DataLoader, TensorDataset


def net():
    torch.manual_seed(12)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def loader():
    torch.manual_seed(13)
    x = torch.randn(22, 8)  # the last batch is a short one
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=4)


class Loop:
    """What a user's script has: a model, an optimizer, a schedule, and the loop over batches."""

    def __init__(self, device):
        AcceleratorState._reset_state(True)
        self.accelerator = Accelerator(cpu=device == "cpu", gradient_accumulation_steps=2)
        model = net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        self.model, self.optimizer, self.loader, self.schedule = self.accelerator.prepare(
            model, optimizer, loader(), schedule
        )
        assert self.accelerator.device.type == device
        assert {p.device.type for p in self.model.parameters()} == {device}

    def epoch(self):
        losses = []
        for x, y in self.loader:
            with self.accelerator.accumulate(self.model):
                loss = torch.nn.functional.cross_entropy(self.model(x), y)
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
            losses.append(loss.detach())
        return self.accelerator.gather(torch.stack(losses)).tolist()

    def hits(self):
        found = []
        with torch.no_grad():
            for x, y in self.loader:
                found.append(self.accelerator.gather_for_metrics(self.model(x).argmax(1) == y))
        return torch.cat(found).int().tolist()


def run(device, folder):
    whole = Loop(device)
    first = whole.epoch()
    whole.accelerator.save_state(f"{folder}/state")
    second = whole.epoch()
    hits = whole.hits()
    whole.accelerator.save_model(whole.model, f"{folder}/model")
    rate = whole.schedule.get_last_lr()
    rest = Loop(device)
    rest.accelerator.load_state(f"{folder}/state")
    again = rest.epoch()
    assert again == second, (again, second)
    weight = rest.accelerator.unwrap_model(rest.model)[0].weight.detach().tolist()
    return {"first": first, "second": second, "hits": hits, "rate": rate, "weight": weight}
