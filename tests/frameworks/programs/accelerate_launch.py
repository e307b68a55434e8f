"""`accelerate launch` of two processes on the device, against one process with twice the batch."""

import json
import os
import subprocess
import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

RESULTS = "ACCELERATE_LAUNCH_RESULTS"


def train(device, batch):
    accelerator = Accelerator(cpu=device == "cpu")
    torch.manual_seed(14)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 2))
    x = torch.randn(32, 6)
    data = DataLoader(TensorDataset(x, x[:, :2].argmax(1)), batch_size=batch)
    net, optimizer, data = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.5), data)
    losses, hits = [], []
    for _ in range(2):
        for x, y in data:
            out = net(x)
            loss = torch.nn.functional.cross_entropy(out, y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean())
            hits.append(accelerator.gather_for_metrics(out.argmax(1) == y).sum())
    weight = accelerator.unwrap_model(net)[0].weight.detach()
    total = accelerator.reduce(weight, reduction="mean")
    return accelerator, {
        "losses": torch.stack(losses).tolist(), "hits": torch.stack(hits).tolist(),
        "weight": weight.tolist(), "mean": total.tolist(),
    }  # fmt: skip


def main():
    """In each process."""
    import torch_pjrt

    accelerator, found = train("xla", 4)
    assert accelerator.num_processes == 2 and accelerator.device.type == "xla"
    counters = torch_pjrt.metrics.counters()
    found["counts"] = {
        "programs": torch_pjrt.metrics.compiles(),
        "launches": torch_pjrt.metrics.timers().get("Execute", (0, 0))[0],
        "cuts": counters.get("GraphCut", 0),
        "on the CPU": sorted(n for n in counters if n.startswith(("aten::", "hostop::"))),
    }
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        with open(os.environ[RESULTS], "w") as f:
            json.dump(found, f)


def run(device, folder):
    if device == "cpu":
        return train("cpu", 8)[1]
    results = f"{folder}/results.json"
    done = subprocess.run(
        [sys.executable, "-m", "accelerate.commands.launch", "--tpu", "--num_processes=2",
         "--main_training_function=main", __file__],
        env=os.environ | {"CPU_NUM_DEVICES": "2", RESULTS: results}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    with open(results) as f:
        return json.load(f)
