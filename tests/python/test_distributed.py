"""`init_process_group("xla")`: collectives of xla tensors are instructions of the program.

Programs run in two processes as torchrun would start them. COLLECTIVES does each call on xla
tensors and, as the reference, on CPU tensors over gloo.
"""

import json
import os
import shutil
import subprocess

import pytest
import soak
from processes import all_fine, run_ranks

# name -> body that gives what the call left behind. `make(shape, dtype)` gives other values on
# each rank, `sub` is a group of rank 0 alone on rank 0 and of rank 1 alone on rank 1.
CALLS = {
    "all_reduce": "t = make((3, 2)); dist.all_reduce(t); return [t]",
    "all_reduce max": "t = make((3,)); dist.all_reduce(t, dist.ReduceOp.MAX); return [t]",
    "all_reduce min": "t = make((3,)); dist.all_reduce(t, dist.ReduceOp.MIN); return [t]",
    "all_reduce product": "t = make((3,)); dist.all_reduce(t, dist.ReduceOp.PRODUCT); return [t]",
    "all_reduce 0-d": "t = make(()); dist.all_reduce(t); return [t]",
    "all_reduce empty": "t = make((0, 2)); dist.all_reduce(t); return [t]",
    "all_reduce of a view": "t = make((4, 2)); dist.all_reduce(t[1:3]); return [t]",
    "all_reduce of a transposed": "t = make((4, 2)); dist.all_reduce(t.t()); return [t]",
    "all_reduce async": "t = make((3,)); dist.all_reduce(t, async_op=True).wait(); return [t]",
    "all_reduce int64": "t = make((3,), torch.int64); dist.all_reduce(t); return [t]",
    "all_reduce int32": "t = make((3,), torch.int32); dist.all_reduce(t); return [t]",
    "all_reduce uint8": "t = make((3,), torch.uint8); dist.all_reduce(t); return [t]",
    "all_reduce float64": "t = make((3,), torch.float64); dist.all_reduce(t); return [t]",
    "all_reduce bfloat16": "t = make((3,), torch.bfloat16); dist.all_reduce(t); return [t]",
    "all_reduce float16": "t = make((3,), torch.float16); dist.all_reduce(t); return [t]",
    "all_reduce complex64": "t = make((3,), torch.complex64); dist.all_reduce(t); return [t]",
    "all_reduce band": (
        "t = make((3,), torch.int32); dist.all_reduce(t, dist.ReduceOp.BAND); return [t]"
    ),
    "all_reduce bor": (
        "t = make((3,), torch.int32); dist.all_reduce(t, dist.ReduceOp.BOR); return [t]"
    ),
    "all_reduce bxor": (
        "t = make((3,), torch.int32); dist.all_reduce(t, dist.ReduceOp.BXOR); return [t]"
    ),
    "all_reduce_coalesced": (
        "a, b = make((3,)), make((2, 2)); dist.all_reduce_coalesced([a, b]); return [a, b]"
    ),
    "broadcast": "t = make((3, 2)); dist.broadcast(t, 1); return [t]",
    "broadcast bool": "t = make((3,)) > 1.5; dist.broadcast(t, 0); return [t]",
    "reduce": "t = make((3,)); dist.reduce(t, 0); return [t] if rank == 0 else []",
    "all_gather": (
        "t = make((3,)); out = [torch.zeros_like(t) for _ in range(world)];"
        "dist.all_gather(out, t); return out"
    ),
    "all_gather_into_tensor": (
        "t = make((3, 2)); out = t.new_zeros(6, 2); dist.all_gather_into_tensor(out, t);"
        "return [out]"
    ),
    "gather": (
        "t = make((3,)); out = [torch.zeros_like(t) for _ in range(world)] if rank == 1 else None;"
        "dist.gather(t, out, dst=1); return out or []"
    ),
    "scatter": (
        "parts = [make((3,)) + i for i in range(world)] if rank == 0 else None;"
        "t = make((3,)); dist.scatter(t, parts, src=0); return [t]"
    ),
    "reduce_scatter_tensor": (
        "t = make((4, 3)); out = t.new_zeros(2, 3); dist.reduce_scatter_tensor(out, t);return [out]"
    ),
    "reduce_scatter": (
        "parts = [make((3,)) + i for i in range(world)]; out = torch.zeros_like(parts[0]);"
        "dist.reduce_scatter(out, parts); return [out]"
    ),
    "all_to_all_single": (
        "t = make((4, 2)); out = torch.zeros_like(t); dist.all_to_all_single(out, t); return [out]"
    ),
    "all_to_all_single uneven": (
        "t = make((4,)); out = t.new_zeros(2 if rank == 0 else 6);"
        "dist.all_to_all_single(out, t, [1, 1] if rank == 0 else [3, 3], [1, 3]); return [out]"
    ),
    "send and recv": (
        "t = make((3,)); dist.send(t, 1) if rank == 0 else dist.recv(t, 0); return [t]"
    ),
    "both send, both receive": (
        "t, u = make((5000,)), torch.zeros_like(make((5000,)));"
        "works = [dist.irecv(u, 1 - rank), dist.isend(t, 1 - rank)];"
        "[w.wait() for w in works]; return [u]"
    ),
    "batch_isend_irecv": (
        "t, u = make((3,)), torch.zeros_like(make((3,)));"
        "ops = [dist.P2POp(dist.isend, t, 1 - rank), dist.P2POp(dist.irecv, u, 1 - rank)];"
        "[w.wait() for w in dist.batch_isend_irecv(ops)]; return [u]"
    ),
    "a group of one": "t = make((3,)); dist.all_reduce(t, group=sub); return [t]",
    "functional all_reduce": (
        "return [functional.wait_tensor(functional.all_reduce(make((3,)), 'sum', name))]"
    ),
    "functional all_gather": (
        "t = functional.all_gather_into_tensor(make((3,)), world, name);"
        "return [functional.wait_tensor(t)]"
    ),
    "functional reduce_scatter": (
        "t = functional.reduce_scatter_tensor(make((4,)), 'sum', world, name);"
        "return [functional.wait_tensor(t)]"
    ),
    "functional wait": (
        "return [functional.wait_tensor(functional.broadcast(make((3,)), 1, name))]"
    ),
}

COLLECTIVES = (
    """
import json
import torch.distributed._functional_collectives
start()
functional = torch.ops._c10d_functional
plain = dist.new_group(backend="gloo")
alone = [dist.new_group([r]) for r in range(world)]
alone_plain = [dist.new_group([r], backend="gloo") for r in range(world)]

def maker(device):
    def make(shape, dtype=torch.float32):
        n = torch.Size(shape).numel()
        return (torch.arange(n).reshape(shape) + 1.5 * (rank + 1)).to(dtype).to(device)
    return make

class Plain:
    # torch.distributed, in the group of CPU tensors
    def __getattr__(self, name):
        value = getattr(torch.distributed, name)
        if name in ("ReduceOp", "P2POp", "isend", "irecv", "batch_isend_irecv"):
            return value
        return lambda *a, **k: value(*a, **{"group": plain, **k})

def bodies(dist, make, sub, name, functional):
    calls = {}
"""
    + "".join(
        f"    def f{i}():\n        {body}\n    calls[{name!r}] = f{i}\n"
        for i, (name, body) in enumerate(CALLS.items())
    )
    + """
    return calls

def values(tensors):
    return [[str(t.dtype), list(t.shape), torch.view_as_real(t.cpu()).tolist() if t.is_complex()
             else t.cpu().tolist()] for t in tensors]

ours = bodies(dist, maker("xla"), alone[rank], dist.group.WORLD.group_name, functional)
theirs = bodies(Plain(), maker("cpu"), alone_plain[rank], plain.group_name, functional)
for name in ours:
    before = cuts()
    try:
        got = ours[name]()
        cut = cuts() - before
        torch_pjrt.sync()  # also on ranks that get nothing: the end of a step
        got = values(got)
    except Exception as e:
        got, cut = f"{type(e).__name__}: {e}", 0
    try:
        want = values(theirs[name]())
    except Exception as e:
        want = f"{type(e).__name__}: {e}"
    print(json.dumps([name, cut, got, want]), flush=True)
t = torch.tensor([True, False, rank == 0], device="xla")
dist.all_reduce(t)
print(json.dumps(["bool", 0, t.tolist(), [True, False, True]]))
t = torch.full((2,), rank, dtype=torch.int16, device="xla")
dist.all_reduce(t)
out = t.new_zeros(4)
dist.all_gather_into_tensor(out, t + rank)
print(json.dumps(["int16", 0, out.tolist(), [1, 1, 2, 2]]))
t = torch.tensor([3.0, rank], device="xla")
dist.all_reduce(t, dist.ReduceOp.AVG)
print(json.dumps(["avg", 0, t.tolist(), [3.0, 0.5]]))
dist.destroy_process_group()
"""
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """By rank and call: [cuts, what it left, what CPU tensors over gloo are left with]."""
    outs = all_fine(run_ranks(COLLECTIVES, tmp_path_factory.mktemp("collectives")))
    return [{r[0]: r[1:] for r in map(json.loads, out.splitlines())} for out in outs]


@pytest.mark.parametrize("name", [*CALLS, "bool", "int16", "avg"])
def test_each_collective_leaves_what_gloo_leaves_on_cpu_tensors(rows, name):
    for of_rank in rows:
        _, got, want = of_rank[name]
        assert got == want


@pytest.mark.parametrize("name", CALLS)
def test_a_collective_is_recorded_and_cuts_nothing(rows, name):
    assert [of_rank[name][0] for of_rank in rows] == [0, 0]


MODEL = """
from torch import nn
import torch.nn.functional as F
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
def batch(i):
    g = torch.Generator().manual_seed(100 + i)
    return torch.randn(8, 8, generator=g), torch.randint(0, 4, (8,), generator=g)
def optimizer(m):
    return torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
def reference(steps):
    m = model(); o = optimizer(m)
    for i in range(steps):
        x, y = batch(i); o.zero_grad(); F.cross_entropy(m(x), y).backward(); o.step()
    return [p.detach() for p in m.parameters()]
"""

DDP = (
    MODEL
    + """
start()
m = nn.parallel.DistributedDataParallel(model().to("xla"))
o = optimizer(m)
torch_pjrt.sync(wait=True)
seen = []
for i in range(6):
    x, y = (t[rank::world].to("xla") for t in batch(i))
    before = cuts(), torch_pjrt.metrics.compiles()
    o.zero_grad(); F.cross_entropy(m(x), y).backward(); o.step(); torch_pjrt.sync()
    seen.append([cuts() - before[0], torch_pjrt.metrics.compiles() - before[1]])
worst = max((a.detach().cpu() - b).abs().max().item()
            for a, b in zip(m.module.parameters(), reference(6)))
print(seen[3:], worst)
dist.barrier()
dist.destroy_process_group()
"""
)


@pytest.fixture(scope="module", params=[2, 4], ids="{} processes".format)
def trained(request, tmp_path_factory):
    return all_fine(run_ranks(DDP, tmp_path_factory.mktemp("ddp"), world=request.param))


def test_ddp_trains_as_one_process_on_the_joined_batch(trained):
    for out in trained:
        assert float(out.split()[-1]) < 1e-6, out


def test_ddp_steps_cut_nothing_and_compile_once(trained):
    for out in trained:
        assert out.startswith("[[0, 0], [0, 0], [0, 0]]"), out


def test_results_that_nobody_reads_take_part_all_the_same(tmp_path):
    code = """
start()
t = torch.full((4,), rank + 1.0, device="xla")
if rank == 0:
    u = t.clone(); dist.all_reduce(u); del u  # the other rank waits for it
else:
    dist.all_reduce(t)
torch_pjrt.sync(wait=True)
print(t.tolist())
dist.destroy_process_group()
"""
    outs = all_fine(run_ranks(code, tmp_path))
    assert [json.loads(o) for o in outs] == [[1.0] * 4, [3.0] * 4]


def test_ranks_that_differ_are_told_what_differs(tmp_path):
    code = """
start(seconds=20)
t = torch.ones(4 + rank, device="xla")
dist.all_reduce(t)
try:
    torch_pjrt.sync(wait=True)
    print(t.tolist())
except Exception as e:
    print(type(e).__name__, e)
"""
    for out in (r.out for r in run_ranks(code, tmp_path)):
        assert "do different things as collective 1" in out
        assert "all_reduce of f32[4]" in out
        assert "all_reduce of f32[5]" in out
        assert "program.py" in out


def test_a_rank_that_dies_ends_the_others_with_rank_op_and_line(tmp_path):
    code = """
start(seconds=10)
t = torch.ones(4, device="xla")
dist.all_reduce(t)
torch_pjrt.sync(wait=True)
if rank == 1:
    os._exit(3)
dist.all_reduce(t)
try:
    torch_pjrt.sync(wait=True)
except Exception as e:
    print(type(e).__name__, e)
"""
    first, second = run_ranks(code, tmp_path)
    assert second.returncode == 3
    assert "rank 0 of 2" in first.out
    assert "all_reduce of f32[4]" in first.out
    assert "program.py" in first.out


def test_a_rank_that_raises_ends_the_others_with_the_message(tmp_path):
    code = """
start(seconds=60)
t = torch.ones(4, device="xla")
dist.all_reduce(t)
torch_pjrt.sync(wait=True)
if rank == 1:
    raise ValueError("a mistake of its own")
dist.all_reduce(t)
try:
    torch_pjrt.sync(wait=True)
except Exception as e:
    print(type(e).__name__, e)
"""
    first, second = run_ranks(code, tmp_path, timeout=120)
    assert second.returncode == 1
    assert "a mistake of its own" in second.err
    assert "rank 0 of 2" in first.out
    assert "another rank raised" in first.out


def test_object_collectives_and_barriers_work(tmp_path):
    code = """
start()
got = [None] * world
dist.all_gather_object(got, {"rank": rank})
some = [rank, "x"] if rank == 0 else [None, None]
dist.broadcast_object_list(some, 0)
dist.barrier()
print([got, some])
dist.destroy_process_group()
"""
    for out in all_fine(run_ranks(code, tmp_path)):
        assert out.strip() == "[[{'rank': 0}, {'rank': 1}], [0, 'x']]"


def test_a_gloo_group_says_how_to_get_one_of_xla(tmp_path):
    code = """
start("gloo")
try:
    dist.all_reduce(torch.ones(2, device="xla"))
except RuntimeError as e:
    print(e)
"""
    (done,) = run_ranks(code, tmp_path, world=1)
    assert "has no device xla" in done.out
    assert 'init_process_group("xla")' in done.out


def test_cpu_tensors_of_the_group_go_to_gloo(tmp_path):
    code = """
start()
t = torch.full((3,), rank + 1.0)
dist.all_reduce(t)
print(t.tolist())
dist.destroy_process_group()
"""
    assert all_fine(run_ranks(code, tmp_path)) == ["[3.0, 3.0, 3.0]\n"] * 2


COMPILED = """
start()
def f(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1
g = torch.compile(f, fullgraph=True)
x = torch.full((4,), rank + 1.0, device="xla")
print([g(x).tolist() for _ in range(3)] == [[7.0] * 4] * 3)
before = torch_pjrt.metrics.compiles()
for i in range(3):
    out = g(x + i)
print(out.tolist() == [15.0] * 4, torch_pjrt.metrics.compiles() - before <= 2)
dist.destroy_process_group()
"""


def test_collectives_inside_torch_compile_are_part_of_the_program(tmp_path):
    for out in all_fine(run_ranks(COMPILED, tmp_path)):
        assert out.split() == ["True"] * 3, out


CAPTURED = (
    MODEL
    + """
start()
m = nn.parallel.DistributedDataParallel(model().to("xla"))
o = optimizer(m)
def step(x, y):
    o.zero_grad(set_to_none=True)
    loss = F.cross_entropy(m(x), y)
    loss.backward()
    o.step()
    return loss
captured = torch_pjrt.capture(step)
for i in range(6):  # DDP itself reads in its second step: it orders its buckets anew
    (step if i < 2 else captured)(*(t[rank::world].to("xla") for t in batch(i)))
    torch_pjrt.sync()
worst = max((a.detach().cpu() - b).abs().max().item()
            for a, b in zip(m.module.parameters(), reference(6)))
print(worst)
dist.barrier()
dist.destroy_process_group()
"""
)


def test_a_captured_ddp_step_trains_as_one_process(tmp_path):
    for out in all_fine(run_ranks(CAPTURED, tmp_path)):
        assert float(out) < 1e-6, out


MEETING = """
from torch_pjrt import plugins
plugins.register([plugins.Plugin("FAKE", os.environ["FAKE"], "a test", wants_kv=True)])
"""


def test_clients_of_several_processes_meet_in_the_group_s_store(tmp_path, fake):
    # The fake plugin's client puts its name into the store and waits for those of all others.
    code = MEETING + "start(); print(torch.xla.device_count())"
    assert all_fine(run_ranks(code, tmp_path, PJRT_DEVICE="FAKE", FAKE=fake)) == ["1\n"] * 2


def test_a_group_that_comes_after_such_a_plugin_started_is_refused(tmp_path, fake):
    code = MEETING + ("torch.xla.device_count()\ntry: start()\nexcept RuntimeError as e: print(e)")
    (done,) = run_ranks(code, tmp_path, world=1, PJRT_DEVICE="FAKE", FAKE=fake)
    assert "the process group came after the device's first use" in done.out
    assert "try: torch.distributed.init_process_group" in done.out


def test_when_a_rank_is_killed_the_others_end_and_the_next_start_continues(tmp_path):
    soak.soak(tmp_path, world=4, steps=60, kills=1, every=10)


@pytest.mark.nightly
def test_a_long_training_survives_many_killed_ranks(tmp_path):
    soak.soak(tmp_path, world=4, steps=2000, kills=5, every=50)


@pytest.fixture
def namespaces():
    """Two network namespaces that see each other over one link: as commands to run in each."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2")

    def ip(*args: str) -> None:
        subprocess.run(["ip", *args], check=True, capture_output=True, timeout=30)

    names = [f"pjrt{os.getpid()}{end}" for end in "ab"]
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip("link", "add", "pjrt0", "netns", names[0], "type", "veth", "peer", "name", "pjrt1",
           "netns", names[1])  # fmt: skip
        for i, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.77.0.{i + 1}/24", "dev", f"pjrt{i}")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", f"pjrt{i}", "up")
        yield [
            ["ip", "netns", "exec", name, "env", f"GLOO_SOCKET_IFNAME=pjrt{i}"]
            for i, name in enumerate(names)
        ]
    finally:
        for name in made:
            ip("netns", "delete", name)


@pytest.mark.nightly
def test_ddp_works_between_two_network_namespaces(tmp_path, namespaces):
    found = run_ranks(DDP, tmp_path, prefixes=namespaces, address="10.77.0.1")
    for out in all_fine(found):
        assert out.startswith("[[0, 0], [0, 0], [0, 0]]"), out
        assert float(out.split()[-1]) < 1e-6, out
