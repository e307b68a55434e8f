"""Storages have an identity: savers tell views and ties, and files go to the device and back."""

import copy
import ctypes
import io
import os
import pickle

import pytest
import torch
from eager import assert_equal, check
from torch import nn

os.environ["HF_HUB_OFFLINE"] = "1"  # configurations and random weights: nothing is downloaded

import torch.distributed.checkpoint as dcp
from safetensors import torch as safetensors

import torch_pjrt


def tensor(shape=(2, 3), dtype=torch.float32, device="xla"):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).to(device, dtype)


# ---- who a memory is ------------------------------------------------------------------------


VIEWS = {
    "itself": lambda x: x,
    "slice": lambda x: x[1:],
    "column": lambda x: x[:, 1],
    "transpose": lambda x: x.t(),
    "flat": lambda x: x.view(-1),
    "expanded": lambda x: x[0].expand(4, 3),
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "other dtype": lambda x: x.view(torch.int16),
    "parameter": lambda x: nn.Parameter(x),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("state", ["ir", "device", "host"])
def test_views_of_a_memory_have_its_identity(name, state):
    x = tensor()
    if state != "host":
        x = x + 1
    if state == "device":
        torch_pjrt.sync(wait=True)
    v, like = VIEWS[name](x), VIEWS[name](tensor(device="cpu"))
    assert v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() != 0
    assert v.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert v.untyped_storage() is x.untyped_storage()
    assert v.untyped_storage().nbytes() == x.untyped_storage().nbytes() == 24
    assert v.storage().data_ptr() == x.data_ptr()
    offset = like.data_ptr() - like.untyped_storage().data_ptr()
    assert v.data_ptr() - x.data_ptr() == offset == v.const_data_ptr() - x.const_data_ptr()
    assert torch._C._is_alias_of(v, x)


OTHERS = {
    "clone": lambda x: x.clone(),
    "sum": lambda x: x + 0,
    "copy of a view": lambda x: x[1:].contiguous().clone(),
    "deepcopy": copy.deepcopy,
    "cpu": lambda x: x.cpu(),
    "made alike": torch.empty_like,
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_memory_has_another_identity(name):
    x = tensor()
    y = OTHERS[name](x)
    a, b = x.untyped_storage(), y.untyped_storage()
    assert a.data_ptr() != b.data_ptr()
    assert a.data_ptr() + a.nbytes() <= b.data_ptr() or b.data_ptr() + b.nbytes() <= a.data_ptr()
    assert not torch._C._is_alias_of(x, y)


def test_identity_lasts_through_syncs_and_writes(device):
    x = torch.ones(3, device=device)
    first = x.data_ptr()
    x.add_(1)
    torch_pjrt.sync(wait=True)
    x[1:].mul_(2)
    x.copy_(torch.zeros(3))
    assert x.data_ptr() == first
    assert x.tolist() == [0, 0, 0]


def test_identity_asked_of_passing_views_is_that_of_the_memory(device):
    """As in `{p.data.data_ptr() for p in parameters}`: the views die at once."""
    x, y = torch.ones(3, device=device), torch.ones(3, device=device)
    seen = [t.detach().untyped_storage().data_ptr() for t in (x, y, x)]
    assert seen[0] == seen[2] == x.data_ptr() != seen[1] == y[:2].data_ptr() != x.data_ptr()
    ids = [t.view(-1).untyped_storage()._cdata for t in (x, y, x)]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)], ids=str)
def test_empty_tensors_have_address_zero_as_in_eager(shape):
    for device in ("cpu", "xla"):
        x = torch.ones(shape, device=device)
        assert (x.data_ptr(), x.untyped_storage().nbytes()) == (0, 0)
        assert x.untyped_storage().data_ptr() == 0


def test_assigned_data_brings_its_identity(device):
    x, y = torch.ones(3, device=device), torch.zeros(4, device=device)
    before, _alive = x.data_ptr(), x.detach()
    x.data = y
    assert x.data_ptr() == y.data_ptr() != before
    x.set_()
    assert x.data_ptr() == 0


def test_a_grown_tensor_keeps_its_storage_which_has_a_new_size(device):
    x = torch.ones(3, device=device)
    storage, view = x.untyped_storage(), x[1:]
    x.resize_(100)
    assert x.untyped_storage() is storage is view.untyped_storage()
    assert storage.nbytes() == 400
    assert x.data_ptr() == storage.data_ptr() == view.data_ptr() - 4


def test_a_storage_keeps_its_memory_alive(device):
    storage = (torch.arange(3.0, device=device) + 1).untyped_storage()
    torch_pjrt.sync()
    got = torch.empty(0, device=device).set_(storage, 1, (2,), (1,))
    assert got.tolist() == [2, 3]


def test_a_storage_that_outlives_its_tensors_takes_new_ones(device):
    storage = torch.ones(3, device=device).add_(1).untyped_storage()
    for _ in range(3):
        a = torch.empty(0, device=device).set_(storage)
        b = torch.empty(0, device=device).set_(storage)
        a.add_(1)
        assert a.untyped_storage() is b.untyped_storage() is storage
        assert b.tolist() == a.tolist()
        del a, b
    assert list(storage.clone().cpu()) == list(torch.full((3,), 5.0).untyped_storage())


def test_memory_is_freed_with_its_last_tensor_and_storage(device):
    before = torch_pjrt._C.live_aliases()
    x = torch.ones(3, device=device)
    storage = x.untyped_storage()
    del x
    assert torch_pjrt._C.live_aliases() == before + 1
    y = torch.empty(0, device=device).set_(storage)
    del storage
    assert torch_pjrt._C.live_aliases() == before + 1
    del y
    assert torch_pjrt._C.live_aliases() == before


def test_the_address_is_never_memory_that_can_be_read(device):
    at = torch.ones(5, device=device).untyped_storage()
    with open("/proc/self/maps") as maps:
        for line in maps:
            first, last = (int(x, 16) for x in line.split()[0].split("-"))
            if first <= at.data_ptr() < last:
                return_permissions = line.split()[1]
    assert return_permissions == "---p"


def test_fake_tensors_have_no_address(device):
    with torch._subclasses.FakeTensorMode():
        x = torch.ones(3, device="xla")
        assert torch_pjrt._C.address_of(x) is None


# ---- bytes, by copies -----------------------------------------------------------------------


BYTES = {
    "list": lambda x: list(x.untyped_storage()),
    "tolist": lambda x: x.untyped_storage().tolist(),
    "one": lambda x: x.untyped_storage()[5],
    "one of its type": lambda x: x.storage()[2],
    "cpu": lambda x: list(x[1].untyped_storage().cpu()),
    "clone": lambda x: torch.empty(0, device=x.device).set_(x.untyped_storage().clone()),
    "new": lambda x: x.new(x.storage()),
    "set": lambda x: torch.empty(0, dtype=torch.int32, device=x.device).set_(x.untyped_storage()),
}


@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("pending", [True, False], ids=["pending", "synced"])
def test_bytes_are_eagers(name, pending):
    def program(x):
        y = (x + 1).t()
        if not pending:
            torch_pjrt.sync()
        got = BYTES[name](y)
        return got if isinstance(got, torch.Tensor) else torch.tensor(got, device=x.device)

    check(program, tensor(device="cpu"), exact=True)


WRITES = {
    "fill": lambda x, y: x.untyped_storage().fill_(1),
    "copy": lambda x, y: x.untyped_storage().copy_(y.untyped_storage()),
    "copy from the cpu": lambda x, y: x.untyped_storage().copy_(y.cpu().untyped_storage()),
    "one": lambda x, y: x.untyped_storage().__setitem__(3, 64),
    "one of its type": lambda x, y: x.storage().__setitem__(3, 64.0),
    "from a file": lambda x, y: x.untyped_storage()._set_from_file(written(y), None, False, 4),
}


def written(x):
    f = io.BytesIO()
    x.untyped_storage()._write_file(f, False, True, 4)
    f.seek(0)
    return f


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("layout", ["plain", "transposed"])
def test_bytes_written_are_seen_by_all_tensors(name, layout):
    def program(x, y):
        x = x.clone() if layout == "plain" else x.t().clone()
        WRITES[name](x, y)
        return x, x[1:]

    check(program, tensor(device="cpu"), tensor(device="cpu") * 10, exact=True)


def test_new_storages_are_made_on_the_device():
    s = torch.UntypedStorage(8, device="xla")
    assert (str(s.device), s.nbytes()) == ("xla:0", 8)
    assert list(s) == [0] * 8
    s.fill_(1)
    assert list(s.clone()) == list(s.to(device="cpu")) == [1] * 8
    assert list(torch.UntypedStorage([1, 2], device="xla:0")) == [1, 2]
    assert list(torch.UntypedStorage([1, 2]).to(device="xla:0")) == [1, 2]
    assert "(device=xla:0) of size 8" in repr(s)
    assert torch.UntypedStorage._new_shared(8, device="xla").device.type == "xla"


@pytest.mark.parametrize(
    "use",
    [lambda s: s[1:3], lambda s: s.byteswap(torch.float32), lambda s: s._byteswap(24, 4)],
    ids=["slice", "byteswap", "raw byteswap"],
)
def test_what_needs_the_bytes_in_place_says_what_to_do(use):
    with pytest.raises(RuntimeError, match=r"device xla has an identity but no bytes") as e:
        use(tensor().untyped_storage())
    assert "storage.cpu()" in str(e.value)


class Asked(torch.Tensor):
    """Notes what it is asked for, as modes and subclasses do."""

    names: list = []  # noqa: RUF012 - the test's log

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.names.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})

    def new_empty(self, *args, **options):
        return super().new_empty(*args, **options).as_subclass(Asked)


def test_subclasses_on_the_cpu_are_asked_what_pytorch_asks():
    x = torch.ones(2).as_subclass(Asked)
    Asked.names.clear()
    x.data_ptr()
    x.untyped_storage()
    assert Asked.names == ["data_ptr", "untyped_storage"]
    Asked.names.clear()
    copy.deepcopy(x)
    assert Asked.names == ["__deepcopy__"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_programs_may_ask_for_addresses(backend):
    def program(x):
        return x + (1 if x.data_ptr() == x.data_ptr() else 2)

    torch._dynamo.reset()
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2, 2]


def test_memory_in_eager_of_cpu_tensors_is_as_without_us():
    x = torch.arange(3.0)
    assert ctypes.c_float.from_address(x.data_ptr() + 4).value == 1
    with pytest.raises(RuntimeError):
        torch.ones(2).to_sparse().data_ptr()


# ---- torch.save, pickle, copies -------------------------------------------------------------


def saved(obj, **options):
    f = io.BytesIO()
    torch.save(obj, f, **options)
    f.seek(0)
    return f


ROUTES = {
    "file": lambda x: torch.load(saved(x)),
    "legacy file": lambda x: torch.load(saved(x, _use_new_zipfile_serialization=False)),
    "any class": lambda x: torch.load(saved(x), weights_only=False),
    "deepcopy": copy.deepcopy,
    "copy": lambda x: [copy.copy(y) for y in x],
    "file to the cpu and back": lambda x: torch.load(
        saved(torch.load(saved(x), map_location="cpu")), map_location=x[0].device
    ),
}
FAMILIES = {
    "slices": lambda x: [x, x[1:], x[0]],
    "transposes": lambda x: [x.t(), x],
    "a view first": lambda x: [x[1:, 1], x.view(-1), x],
    "with gaps": lambda x: [x[:, ::2], x[:, 1:]],
    "expanded": lambda x: [x[0].expand(2, 3)[0], x[0].expand(2, 3).t()[0], x],
    "whole and flat": lambda x: [x.view(3, 2), x.view(-1), x.view(6, 1)],
    "twice": lambda x: [x, x],
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("family", FAMILIES)
def test_views_go_on_sharing_behind(route, family):
    def program(x):
        got = ROUTES[route](FAMILIES[family](x + 1))
        got[0][(0,) * got[0].dim()] = 50
        got[-1].mul_(2)
        return [*got, torch.tensor([g.untyped_storage().nbytes() for g in got], device=x.device)]

    check(program, tensor(device="cpu"), exact=True)


@pytest.mark.parametrize("route", ["file", "legacy file", "deepcopy", "copy"])
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.float16], ids=str
)
def test_dtypes_and_layouts_come_back(route, dtype):
    def program(x):
        return ROUTES[route]([x, x.t(), x[:, 1:], x[0, 1], x[0].expand(2, 3)])

    check(program, tensor(dtype=dtype, device="cpu"), exact=True)


@pytest.mark.parametrize("route", ["file", "deepcopy", "copy"])
@pytest.mark.parametrize("bits", [lambda x: [x.conj(), x], lambda x: [x.imag, x.conj().imag]])
def test_lazy_bits_come_back(route, bits):
    check(lambda x: ROUTES[route](bits(x)), torch.tensor([1 + 2j, 3 - 1j]), exact=True)


@pytest.mark.parametrize("route", ["file", "any class", "deepcopy"])
def test_dtypes_without_typed_storages_come_back(route):
    check(lambda x: ROUTES[route]([x, x[1:]]), tensor(dtype=torch.uint16, device="cpu"), exact=True)


def test_deepcopy_keeps_what_a_tensor_carries(device):
    x = torch.ones(3, device=device, requires_grad=True)
    x.tag = [1]
    x.sum().backward()
    y, view = copy.deepcopy([x, x.detach()[1:]])
    assert (y.tag, y.requires_grad, y.grad.tolist()) == ([1], True, [1, 1, 1])
    assert y.tag is not x.tag
    view.zero_()
    assert (y.tolist(), x.tolist()) == ([1, 0, 0], [1, 1, 1])


def test_copies_share_nothing_with_what_they_copied(device):
    x = torch.ones(3, device=device) + 1
    for route in ("file", "deepcopy"):
        (y,) = ROUTES[route]([x])
        y.zero_()
        assert x.tolist() == [2, 2, 2]


def test_views_of_two_dtypes_are_refused_in_eagers_words():
    for device in ("cpu", "xla"):
        x = tensor(device=device)
        with pytest.raises(RuntimeError, match="view the same data as different types"):
            torch.save([x, x.view(torch.int32)], io.BytesIO())


def test_storages_come_back():
    for x in (tensor() + 1, tensor(device="cpu") + 1):
        for s in (torch.load(saved(x.storage())), pickle.loads(pickle.dumps(x.storage()))):
            assert (s.device, s.tolist()) == (x.device, [2, 3, 4, 5, 6, 7])
        raw = torch.load(saved(x.untyped_storage())).untyped()
        assert (raw.device, raw.tolist()) == (x.device, list(x.cpu().untyped_storage()))


def test_objects_of_all_classes_come_back(device):
    sets = {"a": (tensor(),), "set": frozenset([3]), "nested": [{"m": nn.Linear(2, 2).to(device)}]}
    got = torch.load(saved(sets), weights_only=False)
    assert got["a"][0].device.type == got["nested"][0]["m"].weight.device.type == "xla"
    got = torch.load(saved(sets), weights_only=False, map_location="cpu")
    assert got["a"][0].device.type == got["nested"][0]["m"].weight.device.type == "cpu"


class Earlier:
    """What version 0.1 wrote for a tensor of the device."""

    def __init__(self, x):
        self.x = x

    def __reduce__(self):
        args = (self.x.cpu(), self.x.dtype, str(self.x.device), self.x.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, args


@pytest.mark.parametrize(
    "where",
    [None, "cpu", "xla", lambda s, _: s, {"xla:0": "cpu"}],
    ids=["none", "cpu", "xla", "function", "dict"],
)
def test_files_of_earlier_versions_are_read(where):
    got = torch.load(saved([Earlier(tensor())]), map_location=where)[0]
    assert got.device.type == ("xla" if where in (None, "xla") else "cpu")
    assert torch.equal(got.cpu(), tensor(device="cpu"))


def test_saving_and_loading_compiles_nothing(device, compiles):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)).to(device)
    state = {**net.state_dict(), "t": net[0].weight.t(), "step": torch.tensor(1.0, device=device)}
    with compiles() as seen:
        file = saved(state)
        loaded = torch.load(file)
        assert {torch_pjrt.state(loaded[k]) for k in net.state_dict()} == {"host"}
    assert seen.count == 0
    assert_equal(list(loaded.values()), [t.cpu() for t in state.values()], exact=True)


def test_a_step_after_loading_is_the_same_program(device, compiles):
    net = nn.Linear(3, 2).to(device)
    x = torch.ones(4, 3, device=device)

    def step():
        loss = net(x).sum()
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p.sub_(p.grad)
        torch_pjrt.sync()

    for _ in range(3):
        step()
    file = saved(net.state_dict())
    with compiles() as seen:
        net.load_state_dict(torch.load(file))
        step()
    assert seen.count <= 1  # copies of the loaded values, once
    with compiles() as seen:
        step()
    assert seen.count == 0


# ---- safetensors ----------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


def test_safetensors_files_come_back(tmp_path, device):
    want = {"a": tensor(), "b": tensor(dtype=torch.bfloat16) + 1, "n": tensor((), torch.int64)}
    safetensors.save_file(want, tmp_path / "f")
    for where in ("xla", "cpu"):
        got = safetensors.load_file(tmp_path / "f", device=where)
        assert {t.device.type for t in got.values()} == {where}
        assert_equal([t.cpu() for t in got.values()], [want[k].cpu() for k in got], exact=True)
    bytes_ = safetensors.save(want)
    assert bytes_ == safetensors.save({k: t.cpu() for k, t in want.items()})


@pytest.mark.parametrize("save", [safetensors.save_file, lambda x, _: safetensors.save(x)])
def test_safetensors_refuses_shared_memory_as_for_any_device(save, tmp_path):
    x = tensor()
    for shared in ({"a": x, "b": x}, {"a": x, "b": x[:1]}, {"a": x, "b": x.detach()}):
        with pytest.raises(RuntimeError, match="share memory"):
            save(shared, tmp_path / "f")
    save({"a": x, "b": x.clone()}, tmp_path / "f")


def test_safetensors_tells_ties_and_views(tmp_path, device):
    for where in ("cpu", device):
        m = Tied().to(where)
        whole = torch.arange(6.0, device=where)
        m.register_buffer("whole", whole)
        m.register_buffer("part", whole[2:])
        names = safetensors._remove_duplicate_names(m.state_dict())
        assert names == {"embed.weight": ["head.weight"], "whole": ["part"]}
        apart = {"a": whole[:3], "b": whole[3:]}
        assert sorted(map(sorted, safetensors._find_shared_tensors(apart))) == [["a"], ["b"]]


def test_safetensors_models_come_back_tied(tmp_path, device):
    m = Tied().to(device)
    safetensors.save_model(m, tmp_path / "m")
    other = Tied().to(device)
    with torch.no_grad():
        other.head.weight.zero_()
    assert safetensors.load_model(other, tmp_path / "m") == (set(), [])
    assert other.head.weight is other.embed.weight
    assert torch.equal(other.head.weight.cpu(), m.head.weight.cpu())


# ---- PyTorch's own savers -------------------------------------------------------------------


def test_exported_programs_come_back(tmp_path, device):
    m, x = Tied().to(device), torch.tensor([1, 2], device=device)
    m.forward = lambda i: m.head(m.embed(i))
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).to(device)
    net.register_buffer("t", net[0].weight.detach().t())
    for module, args in ((net, (torch.ones(2, 3, device=device),)),):
        program = torch.export.export(module, args)
        torch.export.save(program, tmp_path / "p.pt2")
        got = torch.export.load(tmp_path / "p.pt2")
        assert {t.device.type for t in got.state_dict.values()} == {"xla"}
        want = program.state_dict
        assert_equal([got.state_dict[k] for k in want], [t.cpu() for t in want.values()])
        assert_equal(got.module()(*args), module(*args).cpu())
    assert x.device.type == "xla"


def checkpointed(state, path, how):
    if how == "async":
        dcp.async_save(state, checkpoint_id=path).result()
    else:
        dcp.save(state, checkpoint_id=path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["sync", "async"])
def test_distributed_checkpoints_come_back(how, tmp_path, device):
    m = Tied().to(device)
    o = torch.optim.Adam(m.parameters())
    m.head(m.embed(torch.tensor([1], device=device))).sum().backward()
    o.step()
    state = {"m": m.state_dict(), "o": o.state_dict(), "view": m.head.weight.detach().t()[1:]}
    checkpointed(state, tmp_path, how)
    want = [t.cpu() for t in (m.head.weight, o.state_dict()["state"][0]["exp_avg"])]
    other = Tied().to(device)
    into = {"m": other.state_dict(), "o": copy.deepcopy(o.state_dict())}
    dcp.load(into, checkpoint_id=tmp_path)
    assert into["m"]["head.weight"].device.type == "xla"
    assert_equal([into["m"]["head.weight"], into["o"]["state"][0]["exp_avg"]], want, exact=True)


@pytest.mark.filterwarnings("ignore")
def test_an_async_save_holds_the_values_of_its_moment(tmp_path, device):
    x = torch.ones(1000, device=device)
    future = dcp.async_save({"x": x}, checkpoint_id=tmp_path)
    x.add_(1)
    torch_pjrt.sync()
    future.result()
    into = {"x": torch.zeros(1000, device=device)}
    dcp.load(into, checkpoint_id=tmp_path)
    assert into["x"].sum().item() == 1000


MUTATIONS = {
    "in place": lambda a, b: b.sin_(),
    "of a view": lambda a, b: b[1:].mul_(3),
    "twice": lambda a, b: b.add_(1).mul_(2),
    "out": lambda a, b: torch.cos(a.detach(), out=b),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_saved_tensors_may_be_changed_where_allowed(name):
    def program(a):
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            b = a.clone()
            c = (b**2).sum() + (b[1:] * b[1:].exp()).sum()
            with torch.no_grad():
                MUTATIONS[name](a, b)
            c.backward()
        return a.grad

    check(program, torch.arange(1.0, 4).requires_grad_())


@pytest.mark.parametrize("options", [{}, {"device_type": "xla"}], ids=["default", "xla"])
@pytest.mark.parametrize("pin", [True, False])
def test_save_on_cpu(options, pin):
    def program(x):
        with torch.autograd.graph.save_on_cpu(pin_memory=pin, **options):
            y = (x.sin() * x.t().exp()).sum()
        y.backward()
        return x.grad

    check(program, tensor((3, 3), device="cpu").div(9).requires_grad_())


# ---- transformers, peft, accelerate, Lightning ----------------------------------------------


def language_model():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=1, n_head=2, n_embd=8, vocab_size=13, n_positions=8, attn_pdrop=0, embd_pdrop=0
    )
    return GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("options", [{}, {"max_shard_size": "1KB"}], ids=["one file", "shards"])
def test_transformers_models_come_back_tied(options, tmp_path, device):
    from transformers import GPT2LMHeadModel

    m = language_model()
    want = m(torch.tensor([[1, 2, 3]])).logits.detach()
    m.to(device).save_pretrained(tmp_path, **options)
    for how in ({"device_map": "xla"}, {"device_map": {"": "xla:0"}}, {}):
        got = GPT2LMHeadModel.from_pretrained(tmp_path, **how).eval().to(device)
        assert {p.device.type for p in got.parameters()} == {"xla"}
        assert got.lm_head.weight is got.transformer.wte.weight
        assert_equal(got(torch.tensor([[1, 2, 3]], device=device)).logits, want)


def test_transformers_tells_storages(device):
    from accelerate.utils.modeling import find_tied_parameters
    from accelerate.utils.modeling import id_tensor_storage as of_accelerate
    from transformers.pytorch_utils import id_tensor_storage

    m = language_model().to(device)
    assert find_tied_parameters(m) == [["lm_head.weight", "transformer.wte.weight"]]
    for identify in (id_tensor_storage, of_accelerate):
        ids = [identify(t) for t in m.state_dict().values()]
        assert len(set(ids)) == len(ids) - 1  # one tie


def test_peft_adapters_come_back(tmp_path, device):
    from peft import LoraConfig, PeftModel, get_peft_model

    def adapted():
        torch.manual_seed(1)
        options = LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False)
        return get_peft_model(language_model(), options)

    want = adapted()(torch.tensor([[1, 2, 3]])).logits.detach()
    adapted().to(device).save_pretrained(tmp_path)
    got = PeftModel.from_pretrained(language_model().to(device), tmp_path)
    assert {p.device.type for p in got.parameters()} == {"xla"}
    assert_equal(got(torch.tensor([[1, 2, 3]], device=device)).logits, want)
    merged = got.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    back = type(merged).from_pretrained(tmp_path / "merged", device_map="xla")
    assert_equal(back(torch.tensor([[1, 2, 3]], device=device)).logits, want)


@pytest.mark.parametrize("safe", [True, False], ids=["safetensors", "pickle"])
def test_accelerate_states_come_back(safe, tmp_path, monkeypatch, device):
    import accelerate
    from accelerate.state import AcceleratorState, PartialState

    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "xla")
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator()
    m = Tied()
    m, o = accelerator.prepare(m, torch.optim.Adam(m.parameters(), 0.1))
    assert m.head.weight.device.type == "xla"

    def step():
        o.zero_grad()
        accelerator.backward((m.head(m.embed(torch.tensor([1, 2], device=device))) ** 2).mean())
        o.step()
        return m.head.weight.detach().cpu().clone()

    step()
    accelerator.save_state(tmp_path, safe_serialization=safe)
    want = [step(), step()]
    accelerator.load_state(tmp_path)
    assert_equal([step(), step()], want, exact=True)
    accelerator.save_model(m, tmp_path / "model", safe_serialization=safe)
    assert m.head.weight is m.embed.weight
    AcceleratorState._reset_state(reset_partial_state=True)
    assert PartialState._shared_state == {}


def lightning_module(device):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = Tied()

        def training_step(self, batch, _):
            assert batch.device.type == self.net.head.weight.device.type == device.type
            return (self.net.head(self.net.embed(batch)) ** 2).mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.1)

    return Module()


def fit(module, device, steps, checkpoint=None):
    import lightning
    from lightning.pytorch.accelerators import CPUAccelerator
    from lightning.pytorch.strategies import SingleDeviceStrategy

    class Any(CPUAccelerator):
        def setup_device(self, device):
            """The CPU's own refuses other devices."""

    strategy = SingleDeviceStrategy(device=device, accelerator=Any())
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options = dict.fromkeys(quiet, False)
    trainer = lightning.Trainer(strategy=strategy, max_steps=steps, max_epochs=-1, **options)
    data = torch.utils.data.DataLoader(torch.tensor([1, 2, 3, 4]), batch_size=2)
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    return trainer


@pytest.mark.filterwarnings("ignore")
def test_lightning_checkpoints_come_back(tmp_path, device):
    ends = []
    for where in (torch.device("cpu"), device):
        first, again = lightning_module(where), lightning_module(where)
        fit(first, where, 2).save_checkpoint(tmp_path / where.type)
        fit(again, where, 4, tmp_path / where.type)
        assert again.net.head.weight is again.net.embed.weight
        ends.append([m.net.head.weight.detach().cpu() for m in (first, again)])
    assert_equal(ends[1], ends[0])
    state = torch.load(tmp_path / "xla", map_location="xla")["state_dict"]
    assert state["net.head.weight"].data_ptr() == state["net.embed.weight"].data_ptr()
    loaded = type(first).load_from_checkpoint(tmp_path / "xla", map_location="xla")
    assert_equal(loaded.net.head.weight, ends[1][0], exact=True)
