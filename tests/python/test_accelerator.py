"""`as_accelerator()`: torch.accelerator, and the frameworks that pick a device themselves."""

import os

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import torch_pjrt


@pytest.fixture
def on():
    torch_pjrt.as_accelerator()
    yield
    torch_pjrt.as_accelerator(False)


# ---- torch.accelerator ----------------------------------------------------------------------


def test_it_answers_xla(on):
    acc = torch.accelerator
    assert acc.is_available()
    assert acc.current_accelerator() == torch.device("xla")
    assert acc.current_accelerator(check_available=True) == torch.device("xla")
    assert acc.device_count() == len(torch_pjrt.devices())
    assert acc.current_device_index() == 0
    acc.set_device_index(0)
    acc.set_device_index("xla:0")
    with acc.device_index(0):
        assert acc.current_device_index() == 0
    assert torch.get_device_module() is torch.xla
    assert torch.float32 in acc.get_device_capability()["supported_dtypes"]


def test_what_it_synchronizes_is_ours(on, device):
    x = torch.ones(3, device=torch.accelerator.current_accelerator()) + 1
    torch.accelerator.synchronize()
    assert torch_pjrt.state(x) == "device"
    torch.accelerator.synchronize("xla:0")
    with pytest.raises(ValueError, match="cuda"):
        torch.accelerator.synchronize("cuda:0")


def test_memory_is_that_of_torch_xla(on, device):
    x = torch.ones(1000, 1000).to(device) + 1
    torch_pjrt.sync(wait=True)
    assert torch.accelerator.memory_allocated() == torch.xla.memory_allocated()
    assert torch.accelerator.memory_allocated(0) >= x.numel() * 4
    assert torch.accelerator.max_memory_allocated() >= torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_reserved() > 0
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.empty_cache()
    torch.accelerator.empty_host_cache()
    assert "allocated_bytes.all.peak" in torch.accelerator.memory_stats()


def test_it_is_put_back(device):
    names = [n for n in dir(torch._C) if "accelerator" in n]
    before = {n: getattr(torch._C, n) for n in names}
    environment = dict(os.environ)
    torch_pjrt.as_accelerator()
    torch_pjrt.as_accelerator()
    assert torch.accelerator.is_available()
    torch_pjrt.as_accelerator(False)
    torch_pjrt.as_accelerator(False)
    assert {n: getattr(torch._C, n) for n in names} == before
    assert dict(os.environ) == environment
    assert not torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() is None


def test_importing_alone_changes_nothing_of_it(run_python):
    code = """
import torch
names = [n for n in dir(torch._C) if "accelerator" in n]
before = [getattr(torch._C, n) for n in names]
import torch_pjrt
print(before == [getattr(torch._C, n) for n in names], torch.accelerator.is_available())
"""
    assert run_python(code=code).stdout == "True False\n"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_pins_memory_loads(on, device, workers):
    data = TensorDataset(torch.arange(8.0))
    loader = DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    got = [(x.to(torch.accelerator.current_accelerator()) * 2).tolist() for (x,) in loader]
    assert got == [[0, 2, 4, 6], [8, 10, 12, 14]]


@pytest.mark.parametrize("args", [(), ("xla",), (torch.device("xla:0"),)], ids=str)
def test_pin_memory_gives_the_tensor_as_it_is(args, on):
    x = torch.arange(4.0)
    assert x.pin_memory(*args) is x
    assert not x.is_pinned()


def test_pin_memory_is_put_back(device):
    before = torch.Tensor.pin_memory
    torch_pjrt.as_accelerator()
    torch_pjrt.as_accelerator(False)
    assert torch.Tensor.pin_memory is before
    with pytest.raises(RuntimeError, match="no pinned host memory"):
        torch.ones(2).pin_memory()


def test_fork_rng_forks_the_devices_numbers(on, device):
    torch.manual_seed(3)
    with torch.random.fork_rng():
        inside = torch.rand(3, device=device).tolist()
    assert torch.rand(3, device=device).tolist() == inside


def test_a_checkpoint_without_device_tensors_works_in_both_states(device):
    from torch.utils.checkpoint import checkpoint

    w = torch.ones(3, requires_grad=True)
    for state in (True, False, True, False):
        torch_pjrt.as_accelerator(state)
        checkpoint(lambda x: (x * 2).sum(), w, use_reentrant=False).backward()
        v = torch.ones(3, device=device, requires_grad=True)
        checkpoint(lambda x: (x * 2).sum(), v, use_reentrant=False).backward()
        assert v.grad.tolist() == [2.0] * 3


def test_code_that_asks_for_the_accelerator_trains_there(on):
    where = torch.accelerator.current_accelerator() or "cpu"
    model = torch.nn.Linear(3, 1).to(where)
    opt = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3, device=where)).sum().backward()
    opt.step()
    assert {p.device.type for p in model.parameters()} == {"xla"}


# ---- frameworks -----------------------------------------------------------------------------

TRAINER = """
import os, tempfile
import torch, {first}
import {second}
{on}
from transformers import Trainer, TrainingArguments

class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        return {{"x": torch.full((4,), float(i)), "labels": torch.tensor(1.0)}}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        y = self.l(x).squeeze(1)
        return {{"loss": ((y - labels) ** 2).mean(), "logits": y}}

folder = tempfile.mkdtemp()
args = TrainingArguments(folder, max_steps=2, per_device_train_batch_size=4, report_to=[],
                         save_strategy="no", disable_tqdm=True{more})
net = Net()
out = Trainer(net, args, train_dataset=Data()).train()
print("device", args.device.type, next(net.parameters()).device.type, out.global_step)
"""
ACCELERATOR = """
import torch, {first}
import {second}
{on}
from accelerate import Accelerator
a = Accelerator({more})
model, opt = torch.nn.Linear(3, 1), None
model, opt = a.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
loss = model(torch.ones(2, 3, device=a.device)).sum()
a.backward(loss)
opt.step()
print("device", a.device.type, next(model.parameters()).device.type, 2)
"""
LIGHTNING = """
import logging, warnings
warnings.simplefilter("ignore")
import torch, {first}
import {second}
{on}
import {package} as L
logging.getLogger("{package}").setLevel(logging.ERROR)

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(3, 1)
    def training_step(self, batch, i):
        return self.l(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

seen = []
class Look(L.Callback):
    def on_train_batch_end(self, trainer, net, *_):
        seen.append(net.l.weight.device.type)

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 3)), batch_size=2)
t = L.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
              enable_model_summary=False, callbacks=[Look()]{more})
t.fit(Net(), data)
print("device", t.strategy.root_device.type, seen[0], t.global_step)
"""
FABRIC = """
import torch, {first}
import {second}
{on}
from lightning.fabric import Fabric
f = Fabric({more})
model = torch.nn.Linear(3, 1)
model, opt = f.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
loss = model(torch.ones(2, 3, device=f.device)).sum()
f.backward(loss)
opt.step()
print("device", f.device.type, next(model.parameters()).device.type, 2)
"""
# name: (program, package, how it is told to stay on the CPU)
PROGRAMS = {
    "Trainer": (TRAINER, "accelerate", ", use_cpu=True"),
    "Accelerator": (ACCELERATOR, "accelerate", "cpu=True"),
    "lightning": (LIGHTNING, "lightning", ", accelerator='cpu'"),
    "pytorch_lightning": (LIGHTNING, "pytorch_lightning", ", accelerator='cpu'"),
    "Fabric": (FABRIC, "lightning.fabric", "accelerator='cpu'"),
}


def imported(late: bool) -> str:
    """What a process imports before its program does: all packages, on the same side of ours."""
    packages = sorted({package for _, package, _ in PROGRAMS.values()})
    order = [*packages, "torch_pjrt"] if late else ["torch_pjrt", *packages]
    return f"import torch, {', '.join(order)}"


def program(name: str, on: bool, more: bool = False, late: bool = False) -> str:
    """`late`: the framework is imported before torch_pjrt."""
    code, package, cpu = PROGRAMS[name]
    modules = [package, "torch_pjrt"] if late else ["torch_pjrt", package]
    return code.format(
        first=modules[0],
        second=modules[1],
        package=package,
        on="torch_pjrt.as_accelerator()" if on else "",
        more=cpu if more else "",
    )


@pytest.mark.parametrize("late", [False, True], ids=["first", "late"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_framework_trains_on_xla_where_asked(run_python, name, late):
    done = run_python(code=program(name, on=True, late=late), imports=imported(late))
    assert done.stdout.splitlines()[-1] == "device xla xla 2", done.stdout + done.stderr
    assert "chooses the CPU" not in done.stderr


@pytest.mark.parametrize("late", [False, True], ids=["first", "late"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_framework_that_chooses_the_cpu_is_warned_about_once(run_python, name, late):
    done = run_python(code=program(name, on=False, late=late), imports=imported(late))
    assert done.stdout.splitlines()[-1] == "device cpu cpu 2", done.stdout + done.stderr
    who = "Lightning" if name in ("lightning", "pytorch_lightning", "Fabric") else "accelerate"
    assert done.stderr.count(f"{who} chooses the CPU (") == 1, done.stderr
    assert "does not know the device xla" in done.stderr
    assert "try: torch_pjrt.as_accelerator() before it is made" in done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_frameworks_step_is_a_step_of_the_device(run_python, name):
    code = program(name, on=True) + "\nprint(torch_pjrt._C.step())"
    steps = 1 if name in ("Accelerator", "Fabric") else 2
    done = run_python(code=code, imports=imported(late=False))
    assert int(done.stdout.splitlines()[-1]) >= steps, done.stdout + done.stderr


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_framework_that_is_told_to_use_the_cpu_does_so_silently(run_python, name, on):
    done = run_python(code=program(name, on=on, more=True), imports=imported(late=False))
    assert done.stdout.splitlines()[-1] == "device cpu cpu 2", done.stdout + done.stderr
    assert "chooses the CPU" not in done.stderr


def test_modules_look_as_if_their_own_loader_had_loaded_them(run_python):
    code = """
import torch_pjrt, importlib, inspect
import accelerate.state as s
print(type(s.__loader__).__name__, type(s.__spec__.loader).__name__)
print("class PartialState" in inspect.getsource(s.PartialState))
importlib.reload(s)
print(s.PartialState.default_device.fget.__name__)
"""
    done = run_python(code=code)
    assert done.stdout.splitlines() == ["SourceFileLoader SourceFileLoader", "True", "chosen"], (
        done.stdout + done.stderr
    )
