"""Lightning: accelerator="tpu", which is whatever torch_xla drives; fit, checkpoint, resume."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(10)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)
        )
        self.losses = []

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.losses.append(loss.detach())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("hits", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


def loader():
    torch.manual_seed(11)
    x = torch.randn(24, 8)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)


def trainer(device, folder, epochs):
    return lightning.Trainer(
        accelerator="tpu" if device == "xla" else "cpu", devices=1, max_epochs=epochs, logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
    )  # fmt: skip


def run(device, folder):
    net = Net()
    fit = trainer(device, folder, 3)
    fit.fit(net, loader(), loader())
    hits = float(fit.callback_metrics["hits"])
    path = f"{folder}/last.ckpt"
    fit.save_checkpoint(path)
    losses = torch.stack(net.losses).tolist()
    more = Net()
    trainer(device, folder, 5).fit(more, loader(), loader(), ckpt_path=path)
    return {"losses": losses, "hits": hits, "resumed": torch.stack(more.losses).tolist()}
