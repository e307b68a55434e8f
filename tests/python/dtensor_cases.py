"""The cases of test_dtensor.py: functions that raise where a promise is broken. Run as a program,
it runs them all in one process with eight devices and prints, as JSON, what each raised."""

import copy
import io
import pickle
import sys

import pytest
import torch
import torch.distributed.tensor as dt
from spmd_cases import collectives, live, main, optimized
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt import metrics, spmd

GRID: DeviceMesh  # of 2x4 and of 8 devices, made where the cases run
LINE: DeviceMesh
AXES = spmd.Mesh(range(8), (2, 4), ("dp", "tp"))


def spec_of(t, mesh=AXES):
    return spmd.sharding_of(t, mesh).spec


# ---- meshes


def case_a_mesh_has_sizes_slices_and_coordinates():
    assert GRID.shape == (2, 4) and GRID.size() == 8 and GRID.size(1) == 4 and GRID.ndim == 2
    assert GRID.get_coordinate() == (0, 0) and GRID.get_rank() == 0
    assert GRID.get_local_rank("tp") == GRID.get_local_rank(0) == 0
    tp, dp = GRID["tp"], GRID["dp"]
    assert tp.size() == 4 and tp.mesh.tolist() == [0, 1, 2, 3] and tp.mesh_dim_names == ("tp",)
    assert dp.mesh.tolist() == [0, 4] and dp.get_coordinate() == (0,) and dp.get_local_rank() == 0
    assert GRID["dp", "tp"] is GRID and tp == GRID["tp"] and hash(tp) == hash(GRID["tp"])
    assert isinstance(tp, DeviceMesh) and "tp=4" in repr(tp)
    flat = GRID._flatten("all")
    assert flat.size() == 8 and flat.mesh.tolist() == list(range(8))
    cube = LINE._unflatten(0, (2, 2, 2), ("a", "b", "c"))
    assert cube.shape == (2, 2, 2) and cube["b"].mesh.tolist() == [0, 2]
    assert [m.mesh.tolist() for m in GRID._get_all_submeshes("dp")] == [
        [0, 4],
        [1, 5],
        [2, 6],
        [3, 7],
    ]
    for mesh in (GRID, tp, cube["b"]):
        again = pickle.loads(pickle.dumps(mesh))
        assert copy.deepcopy(mesh) == mesh == again and type(again) is type(mesh)
        t = distribute_tensor(torch.arange(16.0).view(8, 2), again, [Shard(0)] * again.ndim)
        u = distribute_tensor(torch.arange(16.0).view(8, 2), mesh, [Shard(0)] * mesh.ndim)
        assert [s.index for s in spmd.local_shards(t.full_tensor())] == [
            s.index for s in spmd.local_shards(u.full_tensor())
        ]


def case_a_mesh_of_too_many_devices_is_refused():
    with pytest.raises(RuntimeError, match=r"has device 15, the client 8\n  try: .*DEVICES"):
        init_device_mesh("xla", (16,))


def case_a_mesh_has_no_process_group():
    with pytest.raises(RuntimeError, match="one process: it has no process group\n  try"):
        GRID.get_group("tp")
    with pytest.raises(RuntimeError, match="no process group"):
        LINE.get_group()


def case_a_permuted_mesh_places_by_its_device_numbers():
    mesh = DeviceMesh("xla", torch.arange(7, -1, -1).view(2, 4), mesh_dim_names=("a", "b"))
    t = distribute_tensor(torch.arange(16.0).view(8, 2), mesh, [Replicate(), Shard(0)])
    held = {s.device: s.data[0, 0].item() for s in spmd.local_shards(t.full_tensor())}
    assert held == {7: 0, 6: 4, 5: 8, 4: 12, 3: 0, 2: 4, 1: 8, 0: 12}


# ---- tensors


def case_a_distributed_tensor_is_cut_and_answers_as_dtensor():
    whole = torch.arange(64.0).view(8, 8)
    for placements, spec in (
        ([Shard(0), Shard(1)], ("dp", "tp")),
        ([Shard(1), Shard(0)], ("tp", "dp")),
        ([Replicate(), Shard(-1)], (None, "tp")),
        ([Shard(0), Shard(0)], (("dp", "tp"), None)),
        ([Replicate(), Replicate()], (None, None)),
        ([Shard(0), Partial()], ("dp", None)),
        (None, (None, None)),
    ):
        t = distribute_tensor(whole, GRID, placements)
        assert isinstance(t, DTensor) and t.device.type == "xla" and t.device_mesh is GRID
        assert spec_of(t.full_tensor()) == spec
        assert t.shape == (8, 8) and t.full_tensor().cpu().equal(whole)
        assert type(t.full_tensor()) is torch.Tensor
    t = distribute_tensor(whole, GRID, [Shard(0), Shard(-1)])
    assert t.placements == (Shard(0), Shard(1)) and "Shard(dim=0)" in repr(t)
    assert t._spec.mesh is GRID and t._spec.shape == (8, 8)


def case_no_device_ever_holds_a_whole_sharded_tensor():
    host = torch.randn(1024, 256)
    torch_pjrt.sync(wait=True)
    before = [live(d) for d in range(8)]
    for d in range(8):
        torch_pjrt._C.reset_peak_memory(d)
    t = distribute_tensor(host, GRID, [Shard(0), Shard(1)])
    for d in range(8):
        peak = torch_pjrt.memory(d)["peak_live_bytes"] - before[d]
        assert live(d) - before[d] == peak == host.nbytes // 8
    assert t.full_tensor().cpu().equal(host)


def case_results_of_dtensors_are_dtensors_with_real_placements():
    a, b = torch.randn(16, 8), torch.randn(8, 24)
    x = distribute_tensor(a, GRID, [Shard(0), Replicate()])
    w = distribute_tensor(b, GRID, [Replicate(), Shard(1)])
    y = torch.relu(x @ w)
    assert isinstance(y, DTensor) and y.device_mesh is GRID
    assert y.placements == (Shard(0), Shard(1))
    torch.testing.assert_close(y.full_tensor().cpu(), torch.relu(a @ b))
    v = (x @ w).view(4, 4, 24)
    assert v.placements == (Shard(0), Shard(2))
    z = x + torch.ones(8, device="xla")  # with a plain tensor too
    assert isinstance(z, DTensor) and z.full_tensor().cpu().equal(a + 1)
    assert all(isinstance(p, DTensor) for p in y.chunk(2))


def case_redistribute_moves_values_and_gradients_flow():
    x = distribute_tensor(torch.randn(8, 8), GRID, [Shard(0), Replicate()]).requires_grad_()
    y = (x * 2).redistribute(placements=[Replicate(), Shard(-1)])
    assert y.placements == (Replicate(), Shard(1))
    (y * y).sum().backward()
    torch_pjrt.sync()
    assert spec_of(y.full_tensor()) == (None, "tp")
    torch.testing.assert_close(x.grad.cpu(), 8 * x.detach().full_tensor().cpu())
    half = x.redistribute(placements=[Replicate(), Replicate()], forward_dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="Partial"):
        y.redistribute(placements=[Partial(), Replicate()])
    with pytest.raises(RuntimeError, match="placements is needed"):
        y.redistribute()


def case_a_slice_says_nothing_of_the_other_axes():
    t = distribute_tensor(torch.randn(16, 8), GRID["tp"], [Shard(0)])
    assert spec_of(t.full_tensor()) == ("tp", None)
    p = nn.Parameter(torch.randn(16, 8, device="xla"))
    distribute_tensor(p, GRID["tp"], [Shard(0)])
    distribute_tensor(p, GRID["dp"], [Shard(1)])
    assert spec_of(p) == ("tp", "dp")
    x = distribute_tensor(torch.randn(8, 8, 8), GRID["dp"], [Shard(0)]).full_tensor() * 2
    y = DTensor.from_local(x, GRID["tp"], [Replicate()]).full_tensor() + 1
    torch_pjrt.sync()
    assert spec_of(y) == ("dp", None, None)  # not gathered over dp


def case_a_flattened_mesh_cuts_over_its_axes():
    t = distribute_tensor(torch.arange(16.0), GRID._flatten("flat"), [Shard(0)])
    assert spec_of(t.full_tensor()) == (("dp", "tp"),)
    cube = LINE._unflatten(0, (2, 2, 2), ("a", "b", "c"))
    u = distribute_tensor(torch.arange(16.0).view(4, 4), cube["c"], [Shard(0)])
    assert [s.data.shape for s in spmd.local_shards(u.full_tensor())] == [(2, 4)] * 8
    parts = {s.device: s.index[0].start for s in spmd.local_shards(u.full_tensor())}
    assert parts == {d: 2 * (d % 2) for d in range(8)}


def case_factories_make_sharded_tensors():
    torch.manual_seed(3)
    want = torch.randn(8, 4, device="xla").cpu()
    torch.manual_seed(3)
    r = dt.randn(8, 4, device_mesh=GRID, placements=[Shard(0), Shard(1)])
    assert isinstance(r, DTensor) and r.full_tensor().cpu().equal(want)
    z = dt.zeros(8, 4, device_mesh=GRID, placements=[Shard(0), Replicate()], requires_grad=True)
    f = dt.full((8, 4), 2.5, device_mesh=GRID, placements=[Replicate(), Shard(1)])
    assert z.requires_grad and z.is_leaf and (z + f).sum().item() == 80
    assert f.placements == (Replicate(), Shard(1)) and spec_of(f.full_tensor()) == (None, "tp")
    assert dt.ones(4, dtype=torch.int32, device_mesh=GRID).full_tensor().tolist() == [1] * 4


def case_a_dtensor_is_saved_copied_and_a_parameter():
    t = distribute_tensor(torch.arange(16.0).view(8, 2), GRID, [Shard(0), Replicate()])
    file = io.BytesIO()
    torch.save(t, file)
    file.seek(0)
    assert torch.load(file, map_location="cpu").equal(torch.arange(16.0).view(8, 2))
    c = copy.deepcopy(t)
    assert isinstance(c, DTensor) and c.placements == t.placements
    t.add_(1)
    assert c.full_tensor().sum().item() == 120 and t.full_tensor().sum().item() == 136
    p = nn.Parameter(t)
    assert isinstance(p, DTensor) and isinstance(p, nn.Parameter) and p.requires_grad
    (p * 3).sum().backward()
    assert p.grad.cpu().equal(torch.full((8, 2), 3.0))
    with torch.no_grad():
        p.sub_(p.grad)
    assert p.full_tensor().sum().item() == 136 - 48


def case_what_cannot_be_is_refused_with_what_to_do():
    t = distribute_tensor(torch.ones(8, 8), GRID, [Shard(0), Replicate()])
    with pytest.raises(RuntimeError, match=r"to_local .*\n  try: .full_tensor"):
        t.to_local()
    whole = distribute_tensor(torch.ones(8, 8), GRID)
    assert type(whole.to_local()) is torch.Tensor and whole.to_local().shape == (8, 8)
    with pytest.raises(RuntimeError, match=r"from_local .*\n  try: distribute_tensor"):
        DTensor.from_local(torch.ones(8, 8), GRID, [Shard(0), Replicate()])
    assert DTensor.from_local(torch.ones(2), GRID).full_tensor().tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="leaf tensors"):
        distribute_tensor(torch.ones(8, device="xla", requires_grad=True) * 2, LINE, [Shard(0)])
    with pytest.raises(ValueError, match=r"63.*not divisible"):
        distribute_tensor(torch.ones(63), LINE, [Shard(0)])
    with pytest.raises(ValueError, match=r"same length as `device_mesh.ndim`"):
        distribute_tensor(torch.ones(8), GRID, [Shard(0)])
    with pytest.raises(IndexError, match="of a tensor of 1 dims"):
        distribute_tensor(torch.ones(8), LINE, [Shard(1)])
    with pytest.raises(ValueError, match=r"do you want to call `redistribute`"):
        distribute_tensor(t, GRID, [Shard(1), Replicate()])
    assert distribute_tensor(t, GRID, [Shard(0), Replicate()]) is t
    with pytest.raises(ValueError, match="to_empty"):
        distribute_tensor(torch.ones(8, device="meta"), LINE, [Shard(0)])
    other = init_device_mesh("xla", (2, 2))
    with pytest.raises(RuntimeError, match="to a mesh of others"):
        t.redistribute(other, [Shard(0), Replicate()])


def case_meshes_of_other_devices_keep_torchs_own_code():
    with pytest.raises(ValueError, match=r"init_process_group|environment variable|RANK"):
        DeviceMesh("cpu", [0, 1])
    assert "torch_xla" not in sys.modules


# ---- modules


def case_distribute_module_replicates_what_nobody_cut():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16))  # from the CPU
    seen = []

    def partition(name, m, mesh):
        if isinstance(m, nn.Linear):
            m.register_parameter(
                "weight", nn.Parameter(distribute_tensor(m.weight, mesh, [Shard(0)]))
            )

    def into(m, inputs, mesh):
        seen.append("in")
        return tuple(distribute_tensor(x, mesh, [Shard(0)]) for x in inputs)

    def out(m, output, mesh):
        seen.append("out")
        return output.redistribute(placements=[Replicate()]).to_local()

    host = copy.deepcopy(model)
    assert distribute_module(model, LINE, partition, into, out) is model
    line = spmd.Mesh(range(8), (8,), ("d",))
    assert spec_of(model[0].weight, line) == ("d", None)
    assert spmd.sharding_of(model[0].bias).replicated
    assert spmd.sharding_of(model[1].running_mean).replicated
    assert all(type(p) is nn.Parameter for p in model.parameters())
    x = torch.randn(16, 8)
    y = model(x.to("xla"))
    assert type(y) is torch.Tensor and seen == ["in", "out"]
    torch.testing.assert_close(y.cpu(), host(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(RuntimeError, match="only be called once"):
        distribute_module(model, LINE)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.width = width // heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            w(x).view(b, t, -1, self.width).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w1, self.w2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


class Block(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, heads), MLP(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def train(model, steps=10, mark=lambda x: x):
    """Losses, and how many compiles came behind step 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, compiled = [], 0
    for i in range(steps):
        g = torch.Generator().manual_seed(i)
        x = mark(torch.randn(8, 16, 32, generator=g).to("xla"))
        if i == 1:
            compiled = metrics.compiles()
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - x.roll(1, 1)).square().mean()
        loss = loss.full_tensor() if isinstance(loss, DTensor) else loss
        loss.backward()
        optimizer.step()
        torch_pjrt.sync()
        losses.append(loss.item())
    return losses, metrics.compiles() - compiled


ONE: dict = {}


def made(cls):
    torch.manual_seed(0)
    return cls().to("xla")


def wide():
    return MLP(32)


def check(cls, model, mark=lambda x: x):
    """Trains as on one device, in one program."""
    if cls not in ONE:
        ONE[cls] = train(made(cls))[0]
    losses, later = train(model, mark=mark)
    off = max(abs(a - b) for a, b in zip(losses, ONE[cls], strict=True))
    assert off < 1e-5, (off, losses, ONE[cls])
    assert later == 0, f"{later} compiles behind step 1"


def batch(x):
    return spmd.mark_sharding(x, AXES, ("dp", None, None))


def case_column_then_row_trains_as_one_device():
    model = made(wide)
    parallelize_module(model, GRID["tp"], {"w1": ColwiseParallel(), "w2": RowwiseParallel()})
    assert spec_of(model.w1.weight) == ("tp", None) and spec_of(model.w1.bias) == ("tp",)
    assert spec_of(model.w2.weight) == (None, "tp") and spmd.sharding_of(model.w2.bias).replicated
    assert all(type(p) is nn.Parameter for p in model.parameters())
    check(wide, model, batch)
    part = sum(s.data.nbytes for s in spmd.local_shards(model.w1.weight)) // 8
    assert part == model.w1.weight.nbytes // 4


def case_column_then_row_needs_one_all_reduce_forward():
    line = init_device_mesh("xla", (8,))
    model = parallelize_module(made(wide), line, {"w1": ColwiseParallel(), "w2": RowwiseParallel()})
    y = model(torch.randn(8, 16, 32, device="xla"))
    assert type(y) is torch.Tensor
    torch_pjrt.sync()
    found = collectives(optimized())
    assert found in ({"all-reduce": 1}, {"reduce-scatter": 1, "all-gather": 1}), found


PLAN = {
    "norm1": SequenceParallel(),
    "attention": PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
    ),
    "attention.wq": ColwiseParallel(),
    "attention.wk": ColwiseParallel(),
    "attention.wv": ColwiseParallel(),
    "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
    "norm2": SequenceParallel(),
    "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    "mlp.w1": ColwiseParallel(),
    "mlp.w2": RowwiseParallel(output_layouts=Shard(1)),
}


def case_a_sequence_parallel_block_trains_as_one_device_on_a_slice():
    model = parallelize_module(made(Block), GRID["tp"], PLAN)
    assert spec_of(model.attention.wq.weight) == ("tp", None)
    check(Block, model, batch)
    y = model(batch(torch.randn(8, 16, 32).to("xla")))
    torch_pjrt.sync()
    y = y.full_tensor() if isinstance(y, DTensor) else y
    assert spec_of(y) == ("dp", "tp", None)  # the batch stays cut, and the sequence is


def case_a_sequence_parallel_block_trains_as_one_device_on_a_line():
    model = parallelize_module(made(Block), init_device_mesh("xla", (4,)), PLAN)
    check(Block, model)


def case_an_embedding_is_cut_by_rows_and_columns():
    line = init_device_mesh("xla", (8,))
    index = torch.randint(64, (4, 8))
    for style in (RowwiseParallel(input_layouts=Replicate()), ColwiseParallel()):
        torch.manual_seed(1)
        host = nn.Embedding(64, 16)
        model = parallelize_module(copy.deepcopy(host).to("xla"), line, style)
        y = model(index.to("xla"))
        y.sum().backward()
        host.zero_grad()
        host(index).sum().backward()
        assert y.cpu().equal(host(index)) and model.weight.grad.cpu().equal(host.weight.grad)


def case_prepared_outputs_and_kept_dtensors_are_served():
    line = init_device_mesh("xla", (8,))
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)).to("xla")
    parallelize_module(
        model,
        line,
        {
            "0": ColwiseParallel(use_local_output=False),
            "": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0)),
        },
    )
    x = torch.randn(8, 8, device="xla")
    kept = model[0](x)
    assert isinstance(kept, DTensor) and kept.placements == (Shard(1),)
    y = model(x)
    torch_pjrt.sync()
    assert type(y) is torch.Tensor and spmd.sharding_of(y).shard_shape == (1, 8)


def compiled(model, fullgraph):
    """The largest difference of output and gradients between compiled and not."""
    torch._dynamo.reset()
    x = torch.randn(8, 16, 32)

    def run(f):
        for p in model.parameters():
            p.grad = None
        y = f(batch(x.to("xla")))
        y = y.full_tensor() if isinstance(y, DTensor) else y
        y.square().mean().backward()
        return [y.detach().cpu()] + [p.grad.cpu() for p in model.parameters()]

    want = run(model)
    f = torch.compile(model, backend="openxla", fullgraph=fullgraph)
    got = [run(f) for _ in range(2)][-1]
    return max((a - b).abs().max().item() for a, b in zip(got, want, strict=True))


def case_styles_are_part_of_a_compiled_graph():
    model = parallelize_module(made(Block), GRID["tp"], PLAN)
    assert compiled(model, fullgraph=True) < 1e-5
    out = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(2))
    assert compiled(parallelize_module(made(wide), GRID["tp"], out), fullgraph=True) < 1e-5


def case_a_compiled_module_trains_on_a_cut_batch():  # its backward takes windows of cut values
    assert compiled(made(Block), fullgraph=True) < 1e-5


def case_hooks_of_others_and_fully_shard_break_a_compiled_graph():
    model = distribute_module(
        made(wide), LINE, None, None, lambda m, y, mesh: y.redistribute(placements=[Shard(1)])
    )
    assert compiled(model, fullgraph=False) < 1e-5
    model = made(Block)
    fully_shard(model.mlp, mesh=LINE)
    assert compiled(fully_shard(model, mesh=LINE), fullgraph=False) < 1e-5


# ---- fully_shard


def case_fully_shard_trains_as_one_device():
    model = made(Block)
    before = [*model.parameters()]
    for part in (model.attention, model.mlp):
        fully_shard(part, mesh=LINE)
    out = fully_shard(model, mesh=LINE)
    assert out is model
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    line = spmd.Mesh(range(8), (8,), ("d",))
    for p in model.parameters():
        assert spec_of(p, line)[0] == "d", p.shape
    check(Block, model)
    model.set_requires_gradient_sync(False)
    model.unshard()
    model.reshard()


def case_fully_shard_cuts_the_batch():
    model = fully_shard(made(wide), mesh=LINE)
    y = model(torch.randn(8, 16, 32).to("xla")) * 1
    torch_pjrt.sync()
    line = spmd.Mesh(range(8), (8,), ("d",))
    assert spec_of(y, line) == ("d", None, None)


def case_fully_shard_composes_with_tensor_parallel():
    model = parallelize_module(
        made(wide), GRID["tp"], {"w1": ColwiseParallel(), "w2": RowwiseParallel()}
    )
    fully_shard(model, mesh=GRID["dp"])
    assert spec_of(model.w1.weight) == (("tp", "dp"), None)
    assert spec_of(model.w2.weight) == ("dp", "tp") and spec_of(model.w2.bias) == ("dp",)
    check(wide, model)


def case_a_mesh_of_two_dims_copies_over_the_first():
    model = fully_shard(made(wide), mesh=GRID)
    assert spec_of(model.w1.weight) == ("tp", None)
    check(wide, model)


def case_fully_shard_heeds_its_policies():
    model = made(wide)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
    fully_shard(model, mesh=LINE, mp_policy=policy, shard_placement_fn=lambda p: Shard(p.dim() - 1))
    line = spmd.Mesh(range(8), (8,), ("d",))
    assert spec_of(model.w1.weight, line) == (None, "d")
    x = torch.randn(8, 16, 32)
    y = model(x.to("xla"))
    assert y.dtype == torch.float32
    y.square().mean().backward()
    assert model.w1.weight.dtype == model.w1.weight.grad.dtype == torch.float32
    torch.manual_seed(0)
    host = wide()
    w1, w2 = (nn.functional.linear for _ in range(2))
    h = w1(x.bfloat16(), host.w1.weight.bfloat16(), host.w1.bias.bfloat16())
    want = w2(F.gelu(h), host.w2.weight.bfloat16(), host.w2.bias.bfloat16()).float()
    torch.testing.assert_close(y.cpu(), want, rtol=2e-2, atol=2e-2)


def case_fully_shard_refuses_what_it_cannot_cut():
    from torch.distributed.fsdp import CPUOffloadPolicy

    with pytest.raises(NotImplementedError, match=r"CPUOffloadPolicy.*not built"):
        fully_shard(made(wide), mesh=LINE, offload_policy=CPUOffloadPolicy())
    odd = nn.Linear(3, 5).to("xla")
    with pytest.raises(ValueError, match=r"Shard\(0\).*5 is not divisible by 8"):
        fully_shard(odd, mesh=LINE, shard_placement_fn=lambda p: Shard(0))
    assert spmd.sharding_of(fully_shard(nn.Linear(3, 5).to("xla"), mesh=LINE).weight).replicated


CASES = {n[5:]: f for n, f in list(globals().items()) if n.startswith("case_")}

if __name__ == "__main__":
    GRID = init_device_mesh("xla", (2, 4), mesh_dim_names=("dp", "tp"))
    LINE = init_device_mesh("xla", (8,), mesh_dim_names=("d",))
    main(sys.argv[1:], CASES)
