"""accelerate: a loop with accumulation, clipping, a schedule, gather and save_state."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def parts(accelerator):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    x = torch.randn(32, 8)
    data = TensorDataset(x, x[:, :3].argmax(1))
    return accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8), schedule)


def train(accelerator, model, optimizer, loader, schedule):
    losses = []
    for x, y in loader:
        assert x.device.type == accelerator.device.type
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach().reshape(1)))
    return torch.cat(losses).tolist()


def run(device, folder):
    accelerator = Accelerator(cpu=device == "cpu", gradient_accumulation_steps=2)
    assert accelerator.device.type == device
    made = parts(accelerator)
    first = train(accelerator, *made)
    accelerator.save_state(f"{folder}/state")
    second = train(accelerator, *made)
    accelerator.load_state(f"{folder}/state")
    again = train(accelerator, *made)
    assert second == again
    model, _, loader, _ = made
    hits = []
    for x, y in loader:
        guess, truth = accelerator.gather_for_metrics((model(x).argmax(1), y))
        hits += (guess == truth).tolist()
    unwrapped = accelerator.unwrap_model(model)
    accelerator.save(unwrapped.state_dict(), f"{folder}/model.pt")
    saved = torch.load(f"{folder}/model.pt")
    return {"losses": first + second, "hits": hits, "weights": saved["2.bias"].tolist()}
