"""An op that the device has not runs on CPU copies: what it writes and gives comes back, or it is
refused by name before anything runs. Nothing is lost without a word."""

import warnings

import pytest
import torch

LIBRARY = torch.library.Library("tp_fallback", "DEF")
NAMES = torch.ops.tp_fallback


def define(schema: str):
    """An op with a CPU kernel only."""

    def register(kernel):
        LIBRARY.define(schema)
        LIBRARY.impl(schema.partition("(")[0], kernel, "CPU")
        return kernel

    return register


@define("write(Tensor(a!) x) -> ()")
def _write(x):
    x.add_(1)


@define("write_and_give(Tensor(a!) x, Tensor y) -> (Tensor(a!), Tensor)")
def _write_and_give(x, y):
    return x.add_(1), y * 2


@define("write_list(Tensor(a!)[] xs) -> ()")
def _write_list(xs):
    for i, x in enumerate(xs):
        x.add_(i + 1)


@define("write_optional(Tensor(a!)? x, Tensor y) -> Tensor")
def _write_optional(x, y):
    if x is not None:
        x.add_(1)
    return y + 1


@define("write_both(Tensor(a!) x, Tensor(b!) y) -> ()")
def _write_both(x, y):
    x.add_(1)
    y.mul_(10)


@define("write_and_read(Tensor(a!) x, Tensor y) -> Tensor")
def _write_and_read(x, y):
    x.add_(1)
    return y.clone()


@define("out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
def _out(x, out):
    return out.resize_(x.shape).copy_(x * 2)


@define("many(Tensor x) -> Tensor[]")
def _many(x):
    return [x + 1, x + 2]


@define("optional(Tensor x) -> Tensor?")
def _optional(x):
    return None if x.numel() == 0 else x + 1


@define("scalar_first(Tensor s, Tensor x) -> Tensor")
def _scalar_first(s, x):
    return s + x


@define("optional_list(Tensor?[] xs) -> Tensor")
def _optional_list(xs):
    return sum(x for x in xs if x is not None)


@define("liar(Tensor x, Tensor[] outs) -> Tensor")
def _liar(x, outs):
    for out in outs:
        out.copy_(x)
    return x.clone()


@define("view(Tensor(a) x) -> Tensor(a)")
def _view(x):
    return x[:1]


@define("table(Tensor y, Dict(str, Tensor) xs) -> Tensor")
def _table(y, xs):
    return next(iter(xs.values())) + 1


@define("nested(Tensor y, Tensor[][] xs) -> Tensor")
def _nested(y, xs):
    return xs[0][0] + 1


@define("gives_table(Tensor x) -> Dict(str, Tensor)")
def _gives_table(x):
    return {"x": x}


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def both(run):
    """What `run(device)` gives on the CPU and on the device, as lists."""

    def plain(value):
        if isinstance(value, torch.Tensor):
            return value.tolist()
        return [plain(v) for v in value] if isinstance(value, list | tuple) else value

    return plain(run("cpu")), plain(run("xla"))


def written(name, *args):
    """Runs an op on a fresh x; gives x."""

    def run(device):
        x = torch.arange(4.0).to(device)
        getattr(NAMES, name)(*(a(x) if callable(a) else a for a in args))
        return x

    return run


def of_list(device):
    x, y = torch.arange(4.0).to(device), torch.ones(2).to(device)
    NAMES.write_list([x, y])
    return x, y


def of_views_in_a_list(device):
    x = torch.arange(4.0).to(device)
    NAMES.write_list([x[:2], x[1:], x])
    return x


def of_windows(device):
    x = torch.arange(6.0).reshape(2, 3).to(device)
    NAMES.write_both(x.t(), x[0])
    return x


def of_one_tensor_twice(device):
    x = torch.arange(4.0).to(device)
    NAMES.write_both(x, x)
    return x


def of_a_dtype_view(device):
    x = torch.ones(4, dtype=torch.complex64).to(device)
    NAMES.write_both(torch.view_as_real(x), x)
    return torch.view_as_real(x)


def of_reading_what_is_written(device):
    x = torch.arange(4.0).to(device)
    return NAMES.write_and_read(x[1:], x), x


def given(device):
    x = torch.arange(4.0).to(device)
    a, b = NAMES.write_and_give(x, torch.ones(4).to(device))
    assert a is x or a.data_ptr() == x.data_ptr() or device == "xla"
    assert b.device == x.device
    a.mul_(2)  # the argument itself came back
    return x, b


def resized_out(device):
    x, out = torch.arange(4.0).to(device), torch.empty(0).to(device)
    NAMES.out(x, out=out)
    return out


def many(device):
    made = NAMES.many(torch.ones(2).to(device))
    assert all(t.device.type == device for t in made)
    return made


def optional(device):
    return NAMES.optional(torch.ones(2).to(device)), NAMES.optional(torch.ones(0).to(device))


def scalar_first(device):
    made = NAMES.scalar_first(torch.tensor(2.0), torch.ones(2).to(device))
    assert made.device.type == device
    return made


def optional_list(device):
    made = NAMES.optional_list([None, torch.ones(2).to(device), torch.ones(2).to(device)])
    assert made.device.type == device
    return made


RUNS = {
    "a written tensor": written("write", lambda x: x),
    "a written view": written("write", lambda x: x[1:3]),
    "a written strided view": written("write", lambda x: x[::2]),
    "a written optional": written("write_optional", lambda x: x, lambda x: x * 2),
    "a written optional of none": written("write_optional", None, lambda x: x),
    "a written list": of_list,
    "overlapping views in a written list": of_views_in_a_list,
    "two written windows of one memory": of_windows,
    "one tensor written twice": of_one_tensor_twice,
    "memory written in two dtypes": of_a_dtype_view,
    "memory read while it is written": of_reading_what_is_written,
    "a written tensor among the results": given,
    "an out= that is resized": resized_out,
    "a list of results": many,
    "an optional result": optional,
    "a CPU number before the tensors": scalar_first,
    "a list of optional tensors": optional_list,
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
def test_what_the_op_wrote_and_gave_is_eagers(run):
    eager, ours = both(run)
    assert ours == eager


def test_custom_op_that_mutates_is_put_back():
    @torch.library.custom_op("tp_fallback::custom", mutates_args=("x", "ys"), device_types="cpu")
    def custom(x: torch.Tensor, ys: list[torch.Tensor]) -> torch.Tensor:
        x.mul_(2)
        for y in ys:
            y.add_(x)
        return x + 1

    def run(device):
        x, ys = torch.ones(2).to(device), [torch.ones(2).to(device), torch.zeros(2).to(device)]
        return custom(x, ys), x, ys

    eager, ours = both(run)
    assert ours == eager


def test_gradients_pass_through_an_op_whose_kernel_is_differentiable():
    grads = []
    for device in ("cpu", "xla"):
        x = torch.ones(2).to(device).requires_grad_()
        NAMES.many(x * 3)[0].sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


REFUSED = {
    "liar": lambda x: NAMES.liar(x, [torch.zeros(4, device="xla")]),
    "view": lambda x: NAMES.view(x),
    "table": lambda x: NAMES.table(x, {"x": x}),
    "nested": lambda x: NAMES.nested(x, [[x]]),
    "gives_table": lambda x: NAMES.gives_table(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_put_back_is_refused_by_name(name):
    x = torch.arange(4.0).to("xla")
    with pytest.raises(RuntimeError) as refused:
        REFUSED[name](x)
    first, *rest = str(refused.value).splitlines()
    assert f"tp_fallback::{name}" in first
    assert any("try: " in line for line in rest), "what to do"
    assert x.tolist() == [0, 1, 2, 3]


COLLECTIVES = """
import os, torch, torch_pjrt, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
backend = os.environ["BACKEND"]
store = FakeStore() if backend == "fake" else dist.HashStore()
dist.init_process_group(backend, store=store, rank=0, world_size=2 if backend == "fake" else 1)
x = torch.arange(4.0).to("xla")
group = dist.group.WORLD.group_name
functional = torch.ops._c10d_functional
calls = {
    "all_reduce": lambda: functional.all_reduce(x, "sum", group),
    "all_reduce_": lambda: functional.all_reduce_(x.clone(), "sum", group),
    "all_gather_into_tensor": lambda: functional.all_gather_into_tensor(x, 1, group),
    "reduce_scatter_tensor": lambda: functional.reduce_scatter_tensor(x, "sum", 1, group),
    "all_to_all_single": lambda: functional.all_to_all_single(x, [4], [4], group),
    "broadcast": lambda: functional.broadcast(x, 0, group),
    "dist.all_reduce": lambda: dist.all_reduce(x.clone()),
    "dist.all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.zeros(4).to("xla"), x),
    "dist.broadcast": lambda: dist.broadcast(x.clone(), 0),
    "dist.reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(torch.zeros(4).to("xla"), x),
    "dist.gather": lambda: dist.gather(x, [torch.zeros(4).to("xla")]),
    "dist.scatter": lambda: dist.scatter(torch.zeros(4).to("xla"), [x]),
    "dist.send": lambda: dist.isend(x, 0),
    "DDP": lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to("xla")),
    "DDP device_ids": lambda: torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(2, 2).to("xla"), device_ids=[0]),
    "symm_mem": lambda: torch.ops.symm_mem.one_shot_all_reduce(x, "sum", group),
}
for name, call in calls.items():
    try:
        given = call()
        given = getattr(given, "tolist", lambda: given)()
    except RuntimeError as e:
        first, *rest = str(e).splitlines()
        assert first.split(":")[0].lstrip("_").split("_")[0] in ("c10d", "symm"), (name, str(e))
        assert ": this process group" in first, (name, str(e))
        assert "gloo" in first and any("try: " in line for line in rest), (name, str(e))
    else:
        raise AssertionError(f"{name} gave {given}")
if backend == "gloo":
    assert dist.all_reduce(torch.ones(2)) is None, "CPU tensors go on"
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))(torch.ones(1, 2))
assert x.tolist() == [0, 1, 2, 3]
dist.destroy_process_group()
"""


DTENSORS = """
import warnings, torch, torch_pjrt, torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh
from torch.distributed.tensor import distribute_tensor
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
x = torch.arange(4.0).to("xla")

def calls(mesh):
    def sharded(placement):
        return DTensor.from_local(x.clone(), mesh, [placement], run_check=False)
    yield lambda: sharded(Shard(0)).redistribute(mesh, [Replicate()]).to_local()
    yield lambda: sharded(Replicate()).redistribute(mesh, [Shard(0)]).to_local()
    yield lambda: sharded(Shard(0)).full_tensor()
    yield lambda: sharded(Partial()).full_tensor()
    yield lambda: distribute_tensor(x, mesh, [Shard(0)]).full_tensor()

right = 0
for where in ("cpu", "xla"):
    for call in calls(init_device_mesh(where, (1,))):
        try:
            given = call().tolist()
        except Exception as e:
            assert where == "xla", e
        else:
            right += 1
            assert given == [0, 1, 2, 3], given
assert right >= 5, "a mesh of the CPU works"
dist.destroy_process_group()
"""


def test_distributed_tensors_give_their_values_or_raise(run_python):
    """PyTorch makes no process groups for a mesh of xla, and moves tensors to one of the CPU."""
    done = run_python(code=DTENSORS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", ["gloo", "fake"])
def test_collectives_are_refused_and_not_lost(backend, run_python):
    done = run_python(code=COLLECTIVES, BACKEND=backend)
    assert done.returncode == 0, done.stderr
