"""Tensors of the device go to other processes through the host, as values."""

import io
import multiprocessing
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing
from eager import assert_equal
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SPAWN = torch.multiprocessing.get_context("spawn")


def sent(obj):
    return pickle.loads(ForkingPickler.dumps(obj))


def tensor(device="xla"):
    return torch.arange(6.0).view(2, 3).to(device) + 1


THINGS = {
    "tensor": lambda x: x,
    "pending": lambda x: x * 2,
    "slice": lambda x: x[1:],
    "transpose": lambda x: x.t(),
    "expanded": lambda x: x[0].expand(3, 3),
    "scalar": lambda x: x.sum(),
    "empty": lambda x: x[:, :0],
    "half": lambda x: x.bfloat16(),
    "bool": lambda x: x > 2,
    "conjugate": lambda x: torch.complex(x, x).conj(),
    "parameter": lambda x: nn.Parameter(x),
    "parameter of a slice": lambda x: nn.Parameter(x[1:], requires_grad=False),
    "leaf": lambda x: x.clone().requires_grad_(),
}


@pytest.mark.parametrize("name", THINGS)
def test_sent_tensors_are_equal_and_apart(name):
    sent_, want = THINGS[name](tensor()), THINGS[name](tensor("cpu"))
    got = sent(sent_)
    like = sent(want)
    assert type(got) is type(like)
    assert (str(got.device), got.requires_grad) == ("xla:0", like.requires_grad)
    assert_equal(got, want, exact=True)
    with torch.no_grad():
        got.zero_()
    assert_equal(sent_, want, exact=True)


def test_a_slice_is_sent_without_what_lies_around_it():
    big = torch.ones(1000, 1000, device="xla")
    assert sent(big[3]).untyped_storage().nbytes() == 4000


def test_sent_modules_keep_ties_and_optimizers_their_state(device):
    m = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    m["b"].weight = m["a"].weight
    got = sent(m.to(device))
    assert got["b"].weight is got["a"].weight
    assert_equal(list(got.state_dict().values()), [t.cpu() for t in m.state_dict().values()])
    o = torch.optim.Adam(m.parameters())
    m["a"](torch.ones(2, 3, device=device)).sum().backward()
    o.step()
    state = sent(o.state_dict())["state"][0]["exp_avg"]
    assert state.device.type == "xla"
    assert_equal(state, o.state_dict()["state"][0]["exp_avg"].cpu(), exact=True)


def test_sent_views_of_all_of_a_memory_share_as_on_the_cpu():
    for x in (tensor("cpu"), tensor()):
        a, b = sent([x, x.view(-1)])
        a.zero_()
        assert b.sum().item() == 0


def test_sent_storages_come_back():
    for x in (tensor("cpu"), tensor()):
        typed, raw = sent([x.storage(), x.untyped_storage()])
        assert typed.tolist() == [1, 2, 3, 4, 5, 6]
        assert (raw.device, raw.tolist()) == (x.device, x.untyped_storage().tolist())


def test_a_result_with_a_history_is_refused_in_eagers_words():
    words = set()
    for x in (tensor("cpu"), tensor()):
        with pytest.raises(RuntimeError, match="Cowardly refusing") as e:
            sent(x.requires_grad_() * 2)
        words.add(str(e.value))
    assert len(words) == 1


def test_plain_pickles_hold_values_and_ties():
    f = io.BytesIO()
    m = nn.ModuleList([nn.Linear(2, 2)] * 2).to("xla")
    pickle.dump([m, tensor()[1:]], f)
    f.seek(0)
    got, view = pickle.load(f)
    assert got[0].weight is got[1].weight
    assert_equal([got[0].weight, view], [m[0].weight.cpu(), tensor("cpu")[1:]], exact=True)


# ---- processes ------------------------------------------------------------------------------


def double(inbox, outbox):
    while (item := inbox.get()) is not None:
        outbox.put([t * 2 for t in item])
    inbox.get()  # the tensors in shared memory have been read


@pytest.fixture
def doubling():
    inbox, outbox = SPAWN.Queue(), SPAWN.Queue()
    child = SPAWN.Process(target=double, args=(inbox, outbox))
    child.start()
    yield inbox, outbox
    inbox.put(None)
    inbox.put(None)
    child.join(60)
    assert child.exitcode == 0


def test_queues_carry_device_tensors_both_ways(doubling):
    inbox, outbox = doubling
    x, p = tensor(), nn.Parameter(tensor()[1:], requires_grad=False)
    inbox.put([x, x.t(), p, x.cpu()])
    got = outbox.get(timeout=120)
    assert [t.device.type for t in got] == ["xla", "xla", "xla", "cpu"]
    assert_equal(got, [2 * t.detach().cpu() for t in (x, x.t(), p, x)], exact=True)


class Moved(torch.utils.data.Dataset):
    """Items that are made on the device, as a dataset that was moved there gives them."""

    def __init__(self):
        self.x = tensor()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"row": self.x[i], "sum": self.x[i].sum(), "n": i}


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_with_spawned_workers_give_device_tensors(workers):
    context = "spawn" if workers else None
    options = {"batch_size": 2, "num_workers": workers, "multiprocessing_context": context}
    (batch,) = DataLoader(Moved(), **options)
    assert batch["row"].device.type == batch["sum"].device.type == "xla"
    assert_equal([batch["row"], batch["sum"]], [tensor("cpu"), tensor("cpu").sum(1)], exact=True)
    assert batch["n"].tolist() == [0, 1]


def test_loaders_carry_tensor_datasets_to_spawned_workers():
    data = TensorDataset(tensor(), tensor().bfloat16())
    loader = DataLoader(data, batch_size=1, num_workers=1, multiprocessing_context="spawn")
    got = [[t.cpu() for t in pair] for pair in loader]
    assert_equal(got, [[row[None], row[None].bfloat16()] for row in tensor("cpu")], exact=True)


def test_the_start_methods_are_left_as_they_were():
    assert multiprocessing.get_start_method() == "fork"
