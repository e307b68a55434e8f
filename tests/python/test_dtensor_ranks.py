"""DTensor over a process group of device xla: torch's own code over recorded collectives.

Two processes as torchrun would start them. One run does all of CASES; each prints what it found.
"""

import json

import pytest
from processes import all_fine, run_ranks

SHARED = """
import json, traceback
from torch import nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh, DeviceMesh
import torch.distributed.tensor as dt
from torch.distributed.tensor import DTensor, Shard, Replicate, Partial
from torch.distributed.tensor import distribute_tensor, distribute_module
from torch.distributed.tensor.parallel import *
start()
mesh = init_device_mesh("xla", (world,), mesh_dim_names=("tp",))
whole = torch.arange(16.0).view(4, 4)
def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
def close(a, b, tol=1e-5):
    return (a.detach().cpu() - b.detach().cpu()).abs().max().item() < tol
def train(model, steps=4):
    o = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, seen = [], []
    for i in range(steps):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(4, 8, generator=g).to(next(model.parameters()).device)
        before = cuts(), torch_pjrt.metrics.compiles()
        o.zero_grad(); loss = (model(x) - 1).square().mean(); loss.backward(); o.step()
        torch_pjrt.sync()
        seen.append([cuts() - before[0], torch_pjrt.metrics.compiles() - before[1]])
        losses.append(loss.item())
    return losses, seen
"""

CASES = {
    "a mesh of ranks has places and groups": """
return [mesh.get_rank() == rank, mesh.get_local_rank() == rank, mesh.get_coordinate() == (rank,),
        dist.get_world_size(mesh.get_group()) == world, mesh["tp"] is mesh, mesh.size() == world]
""",
    "distribute_tensor gives each rank its part": """
t = distribute_tensor(whole, mesh, [Shard(0)])
return [type(t) is DTensor, t.to_local().device.type == "xla",
        t.to_local().cpu().equal(whole.chunk(world)[rank]), t.shape == (4, 4),
        t.full_tensor().cpu().equal(whole)]
""",
    "rank 0 is the source, or each rank its own": """
mine = whole + rank
a = distribute_tensor(mine, mesh, [Replicate()])
b = distribute_tensor(mine, mesh, [Replicate()], src_data_rank=None)
return [a.to_local().cpu().equal(whole), b.to_local().cpu().equal(mine)]
""",
    "a tensor of parts is saved and loaded": """
import io
t = distribute_tensor(whole, mesh, [Shard(0)])
file = io.BytesIO(); torch.save(t, file); file.seek(0)
back = torch.load(file)
return [back.device_mesh == mesh, back.placements == (Shard(0),), back.device.type == "xla",
        back.to_local().cpu().equal(whole.chunk(world)[rank])]
""",
    "redistribute moves between all placements": """
t = distribute_tensor(whole, mesh, [Shard(0)])
before = cuts()
r = t.redistribute(placements=[Replicate()])
s = t.redistribute(placements=[Shard(1)])
back = r.redistribute(placements=[Shard(0)])
p = DTensor.from_local(torch.full((4, 4), rank + 1.0, device="xla"), mesh, [Partial()])
q, u = p.redistribute(placements=[Replicate()]), p.redistribute(placements=[Shard(0)])
none = cuts() - before
return [r.to_local().cpu().equal(whole), s.to_local().cpu().equal(whole.chunk(world, 1)[rank]),
        back.to_local().cpu().equal(whole.chunk(world)[rank]), none == 0,
        q.to_local().cpu().eq(3).all().item(), u.to_local().cpu().equal(torch.full((2, 4), 3.0))]
""",
    "uneven sizes are cut as torch cuts them": """
t = distribute_tensor(torch.arange(5.0), mesh, [Shard(0)])
return [t.to_local().cpu().equal(torch.arange(5.0).chunk(world)[rank]),
        t.full_tensor().cpu().equal(torch.arange(5.0)), t.sum().full_tensor().item() == 10]
""",
    "ops give what one process gives": """
g = torch.Generator().manual_seed(1)
a, b = torch.randn(4, 6, generator=g), torch.randn(6, 8, generator=g)
x, w = distribute_tensor(a, mesh, [Shard(0)]), distribute_tensor(b, mesh, [Shard(1)])
y = torch.relu(x @ w).softmax(-1)
return [isinstance(y, DTensor), close(y.full_tensor(), torch.relu(a @ b).softmax(-1)),
        close(x.sum().full_tensor(), a.sum()),
        close((x * 2).mean(0).full_tensor(), (a * 2).mean(0))]
""",
    "gradients flow through parts": """
x = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
(x.redistribute(placements=[Replicate()]).to_local() ** 2).sum().backward()
return [isinstance(x.grad, DTensor), close(x.grad.full_tensor(), 2 * whole)]
""",
    "factories make parts": """
z = dt.zeros(4, 4, device_mesh=mesh, placements=[Shard(0)])
f = dt.full((4, 4), 2.0, device_mesh=mesh, placements=[Replicate()])
return [z.to_local().shape == (2, 4), (z + f).full_tensor().sum().item() == 32]
""",
    "distribute_module replicates": """
m = distribute_module(mlp().to("xla"), mesh)
return [all(isinstance(p, DTensor) for p in m.parameters())]
""",
    "a column and row parallel mlp trains as one process": """
host = mlp()
want, _ = train(host)
m = parallelize_module(mlp().to("xla"), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
got, seen = train(m)
return [m[0].weight.to_local().shape == (8, 8), max(abs(a - b) for a, b in zip(got, want)) < 1e-6,
        all(close(p.full_tensor(), q, 1e-6) for p, q in zip(m.parameters(), host.parameters())),
        all(c == 0 for c, _ in seen), [n for _, n in seen[2:]] == [0, 0]]
""",
    "a sequence parallel norm trains as one process": """
def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
host = make()
want, _ = train(host)
m = parallelize_module(make().to("xla"), mesh, {
    "0": SequenceParallel(sequence_dim=0), "1": ColwiseParallel(input_layouts=Shard(0)),
    "3": RowwiseParallel(output_layouts=Replicate())})
o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
losses = []
for i in range(4):
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(i)).chunk(world)[rank].to("xla")
    o.zero_grad(); loss = (m(x) - 1).square().mean(); loss.backward(); o.step(); torch_pjrt.sync()
    losses.append(loss.item())
return [max(abs(a - b) for a, b in zip(losses, want)) < 1e-5]
""",
    "parts of a random tensor differ, copies do not": """
parts = dt.randn(8, 4, device_mesh=mesh, placements=[Shard(0)]).full_tensor().cpu()
x = F.dropout(distribute_tensor(torch.ones(8, 64), mesh, [Replicate()]), 0.5).to_local()
both = [torch.zeros_like(x) for _ in range(world)]
dist.all_gather(both, x)
return [not parts[:4].equal(parts[4:]), both[0].cpu().equal(both[1].cpu()), x.eq(0).any().item()]
""",
    "a loss over cut classes and a norm of gradients are those of one process": """
logits = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
x = distribute_tensor(logits, mesh, [Shard(1)]).requires_grad_()
target = torch.arange(8)
with loss_parallel():
    loss = F.cross_entropy(x, distribute_tensor(target, mesh, [Replicate()]))
    loss.backward()
host = logits.clone().requires_grad_()
F.cross_entropy(host, target).backward()
norm = torch.nn.utils.clip_grad_norm_([x], 1e-3).full_tensor()
want = torch.nn.utils.clip_grad_norm_([host], 1e-3)
return [close(loss.full_tensor(), F.cross_entropy(logits, target)), close(norm, want),
        close(x.grad.full_tensor(), host.grad)]
""",
    "fully_shard is refused": """
from torch.distributed.fsdp import fully_shard
try:
    fully_shard(mlp().to("xla"), mesh=mesh)
except NotImplementedError as e:
    return ["a mesh of processes, is not built" in str(e), "try: one process" in str(e)]
return [False]
""",
    "a mesh that is larger than the group is refused": """
try:
    init_device_mesh("xla", (8,))
except RuntimeError as e:
    return ["the process group 2 ranks" in str(e), "try:" in str(e)]
return [False]
""",
}

PROGRAM = (
    SHARED
    + "".join(
        f"def f{i}():\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())
        for i, body in enumerate(CASES.values())
    )
    + f"""
for i in range({len(CASES)}):
    try:
        found = globals()[f"f{{i}}"]()
    except Exception:
        found = traceback.format_exc()
    print(json.dumps(found), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """By rank and case: what was found."""
    outs = all_fine(run_ranks(PROGRAM, tmp_path_factory.mktemp("dtensor")))
    return [dict(zip(CASES, map(json.loads, out.splitlines()), strict=True)) for out in outs]


@pytest.mark.parametrize("name", CASES)
def test_two_processes(found, name):
    for of_rank in found:
        assert isinstance(of_rank[name], list) and all(of_rank[name]), of_rank[name]


def test_a_mesh_starts_the_group_that_torchrun_asks_for(tmp_path):
    code = """
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("xla", (world,))
t = torch.full((2,), rank + 1.0, device="xla")
dist.all_reduce(t, group=mesh.get_group())
print(dist.get_backend(), t.tolist())
dist.destroy_process_group()
"""
    assert all_fine(run_ranks(code, tmp_path)) == ["xla [3.0, 3.0]\n"] * 2
