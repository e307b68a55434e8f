"""The package's face, and the edges of PyTorch that importing it puts right."""

import copy
import io
import os
import signal
import time

import pytest
import torch

import torch_pjrt


def test_names_in_all_exist():
    missing = [name for name in torch_pjrt.__all__ if not hasattr(torch_pjrt, name)]
    assert missing == []


def test_device_module_is_registered():
    assert torch.get_device_module("xla") is torch.xla
    assert torch.xla.is_available()
    assert torch.xla.device_count() == len(torch_pjrt.devices()) >= 1
    assert torch.xla.current_device() == 0
    assert isinstance(torch.xla.memory_stats(), dict)


def test_device_context_restores_the_current_device():
    with torch.xla.device(0):
        assert torch.xla.current_device() == 0
    with torch.xla.device(-1):
        assert torch.xla.current_device() == 0
    with pytest.raises(ValueError, match="expected a device of type xla"):
        torch.xla.set_device("cpu")


def test_state_names_where_a_value_is(device):
    x = torch.ones(3).to(device)
    y = x + 1
    assert torch_pjrt.state(y) == "ir"
    torch_pjrt.sync(wait=True)
    assert torch_pjrt.state(y) == "device"


def test_torch_manual_seed_seeds_the_device(device):
    torch.manual_seed(3)
    a = torch.rand(4, device=device).cpu()
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4, device=device).cpu(), a)
    assert torch.xla.initial_seed() == 3


def test_torch_pjrt_manual_seed_leaves_the_cpu_alone():
    torch.manual_seed(3)
    torch_pjrt.manual_seed(5)
    assert torch.initial_seed() == 3
    assert torch.xla.initial_seed() == 5


def test_rng_state_can_be_put_back(device):
    state = torch.xla.get_rng_state_all()
    a = torch.rand(4, device=device).cpu()
    torch.xla.set_rng_state_all(state)
    assert torch.equal(torch.rand(4, device=device).cpu(), a)


def test_fork_rng_restores_the_device(device):
    torch.manual_seed(1)
    with torch.random.fork_rng(device_type="xla"):
        a = torch.rand(2, device=device).cpu()
    assert torch.equal(torch.rand(2, device=device).cpu(), a)


def test_module_to_keeps_its_parameters(device):
    m = torch.nn.Linear(2, 2)
    before = list(m.parameters())
    m.to(device)
    assert all(a is b for a, b in zip(before, m.parameters(), strict=True))
    assert m.weight.device.type == "xla"


# ---- torch.load -----------------------------------------------------------------------------


def saved(obj) -> io.BytesIO:
    f = io.BytesIO()
    torch.save(obj, f)
    f.seek(0)
    return f


@pytest.mark.parametrize(
    "where",
    [
        "xla",
        "xla:0",
        torch.device("xla"),
        {"cpu": "xla"},
        lambda s, _: torch.serialization.default_restore_location(s, "xla:0"),
    ],
    ids=["text", "text with index", "device", "dict", "function"],
)
@pytest.mark.parametrize("weights_only", [True, False])
def test_load_maps_cpu_tensors_to_the_device(where, weights_only):
    x = torch.arange(6.0).view(2, 3)
    f = saved({"a": x, "list": [x[0], ("name", 3)], "n": 7})
    got = torch.load(f, map_location=where, weights_only=weights_only)
    assert got["a"].device.type == got["list"][0].device.type == "xla"
    assert torch.equal(got["a"].cpu(), x)
    assert torch.equal(got["list"][0].cpu(), x[0])
    assert got["list"][1] == ("name", 3)
    assert got["n"] == 7


def test_load_keeps_parameters_and_sharing():
    p = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    got = torch.load(saved([p, p]), map_location="xla", weights_only=True)
    assert got[0] is got[1]
    assert isinstance(got[0], torch.nn.Parameter)
    assert not got[0].requires_grad


def test_load_maps_whole_modules():
    m = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    got = torch.load(saved(m), map_location="xla", weights_only=False)
    assert {t.device.type for t in got.state_dict().values()} == {"xla"}
    assert torch.equal(got[0].weight.cpu(), m[0].weight)


def test_load_maps_only_what_the_dict_names():
    got = torch.load(saved(torch.ones(2)), map_location={"cuda:0": "xla"}, weights_only=True)
    assert got.device.type == "cpu"


@pytest.mark.parametrize("where", ["cpu", lambda s, _: s, {"xla:0": "cpu"}])
def test_load_brings_saved_device_tensors_to_the_cpu(device, where):
    f = saved({"a": torch.arange(3.0).to(device) + 1})
    got = torch.load(f, map_location=where, weights_only=True)
    assert got["a"].device.type == "cpu"
    assert got["a"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("where", [None, "xla", lambda _s, _l: None])
def test_load_brings_saved_device_tensors_back_to_the_device(device, where):
    f = saved(torch.arange(3.0).to(device))
    got = torch.load(f, map_location=where, weights_only=True)
    assert got.device.type == "xla"
    assert got.tolist() == [0, 1, 2]


# ---- copies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["cpu", "xla"])
def test_copy_shares_and_deepcopy_does_not(where):
    t = torch.ones(2, device=where)
    t.note = "kept"
    shared, apart = copy.copy(t), copy.deepcopy(t)
    shared.add_(1)
    apart.add_(5)
    assert t.tolist() == [2, 2]
    assert shared.note == "kept"


@pytest.mark.parametrize("where", ["cpu", "xla"])
def test_copy_of_a_parameter_is_one(where):
    p = torch.nn.Parameter(torch.ones(2, device=where))
    c = copy.copy(p)
    assert type(c) is torch.nn.Parameter
    assert c.requires_grad
    assert c.is_leaf
    with torch.no_grad():
        c.add_(1)
    assert p.tolist() == [2, 2]


# ---- optimizers -----------------------------------------------------------------------------


def train(device, steps, **options):
    torch.manual_seed(0)
    m = torch.nn.Linear(4, 3).to(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1, **options)
    x = torch.linspace(-1, 1, 8).view(2, 4).to(device)
    for _ in range(steps):
        o.zero_grad()
        m(x).square().sum().backward()
        o.step()
        if device != "cpu":
            torch_pjrt.sync()
    return [p.detach().cpu() for p in m.parameters()], o


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.9, "weight_decay": 0.1, "maximize": True},
        {"momentum": 0.9, "dampening": 0.5},
    ],
    ids=str,
)
def test_sgd_momentum_gives_eagers_weights(device, options):
    ours, _ = train(device, 4, **options)
    eager, _ = train("cpu", 4, **options)
    for a, b in zip(ours, eager, strict=True):
        torch.testing.assert_close(a, b)


def test_sgd_momentum_trains_with_one_program(device, compiles):
    m = torch.nn.Linear(5, 3).to(device)
    o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    x = torch.ones(2, 5).to(device)
    with compiles() as seen:
        for _ in range(3):
            o.zero_grad()
            m(x).square().sum().backward()
            o.step()
            torch_pjrt.sync()
    assert (seen.count, seen.fallbacks) == (1, ())


def test_optimizer_state_survives_deepcopy_and_load(device):
    _, o = train(device, 1, momentum=0.9)
    state = copy.deepcopy(o.state_dict())
    _, fresh = train(device, 0, momentum=0.9)
    fresh.load_state_dict(state)
    buffers = [s["momentum_buffer"] for s in fresh.state.values()]
    assert {b.device.type for b in buffers} == {"xla"}


# ---- forks ----------------------------------------------------------------------------------


def test_a_forked_child_is_told_so_and_does_not_hang(device):
    torch.ones(2).to(device).add(1).cpu()  # the client runs
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            torch.manual_seed(1)  # as DataLoader workers do
            torch.ones(2, device=device).cpu()
            message = "no error"
        except RuntimeError as e:
            message = str(e)
        os.write(write, message.encode())
        os._exit(0)
    for _ in range(200):
        if os.waitpid(pid, os.WNOHANG)[0]:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        pytest.fail("the child hangs")
    assert "forked" in os.read(read, 4096).decode()
