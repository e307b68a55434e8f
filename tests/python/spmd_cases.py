"""The cases of test_spmd.py: functions that raise where a promise is broken. Run as a program, it
runs them all in one process with eight devices and prints, as JSON, what each raised."""

import copy
import json
import sys
import traceback

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt import graph, metrics, spmd

LINE = spmd.Mesh(range(8), (8,), ("d",))
GRID = spmd.Mesh(range(8), (2, 4), ("x", "y"))


def count(name: str) -> int:
    return metrics.counters().get(name, 0)


def optimized() -> str:
    """The optimized program of the last sync."""
    return torch_pjrt.graph.last().program().optimized


COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def collectives(text: str) -> dict[str, int]:
    """How many instructions of each kind; a started one counts once."""
    found = {}
    for kind in COLLECTIVES:
        n = text.count(f" {kind}(") + text.count(f" {kind}-start(")
        if n:
            found[kind] = n
    return found


def live(device: int) -> int:
    return torch_pjrt.memory(device)["live_bytes"]


# ---- specs


def case_the_order_of_a_spec_and_of_operands_is_kept():  # X#5264
    x = torch.arange(64.0, device="xla").view(8, 8)
    y = x + 1
    for mesh in (GRID, spmd.Mesh(range(8), (4, 2), ("x", "y"))):
        for s in (("x", "y"), ("y", "x"), (None, "y"), (("x", "y"), None), (("y", "x"), None)):
            p, q = x.clone(), y.clone()
            spmd.mark_sharding(p, mesh, s)
            spmd.mark_sharding(q, mesh, s[::-1])
            assert ((p - q) == -1).all().item()
            assert (p / q).cpu().equal(x.cpu() / y.cpu())


def case_an_uneven_size_is_refused_in_words():
    with pytest.raises(ValueError, match=r"63.*not divisible.*8"):
        spmd.mark_sharding(torch.ones(63, device="xla"), LINE, ("d",))
    with pytest.raises(ValueError, match="pad it to 64"):
        spmd.mark_sharding(torch.ones(63, device="xla") + 1, LINE, ("d",))


def case_a_bad_spec_is_refused_in_words():
    t = torch.ones(8, 8, device="xla")
    with pytest.raises(ValueError, match=r"the spec has 1 entry, the tensor 2 dims"):
        spmd.mark_sharding(t, LINE, ("d",))
    with pytest.raises(ValueError, match=r"no axis 'q'"):
        spmd.mark_sharding(t, LINE, ("q", None))
    with pytest.raises(ValueError, match=r"'d' comes twice"):
        spmd.mark_sharding(t, LINE, ("d", "d"))
    with pytest.raises(ValueError, match=r"the mesh has device 8"):
        spmd.mark_sharding(t, spmd.Mesh(range(1, 9), (8,), ("d",)), ("d", None))


def case_zero_and_one_dimensional_tensors_are_marked():  # X#8606
    zero, one = torch.tensor(3.0, device="xla"), torch.arange(8.0, device="xla")
    spmd.mark_sharding(zero, LINE, ())
    spmd.mark_sharding(one, LINE, ("d",))
    assert (zero * one).tolist() == [3.0 * i for i in range(8)]


# ---- where bytes are


def case_shards_are_the_parts_of_the_tensor():
    whole = torch.arange(16.0 * 24).view(16, 24)
    for spec in (("x", "y"), ("y", "x"), (None, ("y", "x")), (("x", "y"), None), (None, None)):
        t = spmd.mark_sharding(whole.to("xla"), GRID, spec)
        shards = spmd.local_shards(t)
        assert [s.device for s in shards] == list(range(8))
        assert all(s.data.equal(whole[s.index]) for s in shards)
        assert spmd.sharding_of(t).shard_shape == tuple(shards[0].data.shape)
        assert t.cpu().equal(whole)


def case_host_bytes_are_cut_before_they_go_up():
    torch_pjrt.sync(wait=True)
    host = torch.randn(1024, 256)
    t = host.to("xla")
    assert torch_pjrt.state(t) == "host"
    before = [live(d) for d in range(8)]
    for d in range(8):
        torch_pjrt._C.reset_peak_memory(d)
    spmd.mark_sharding(t, LINE, (None, "d"))
    for d in range(8):
        assert live(d) - before[d] == host.nbytes // 8
        peak = torch_pjrt.memory(d)["peak_live_bytes"]
        assert peak - before[d] == host.nbytes // 8, (d, peak - before[d])
    assert t.cpu().equal(host)


def case_bytes_on_devices_move_by_a_cached_program():
    t = spmd.mark_sharding(torch.arange(64.0).view(8, 8).to("xla"), LINE, ("d", None))
    first = count("Reshard")
    spmd.mark_sharding(t, LINE, (None, "d"))
    assert count("Reshard") == first + 1
    assert spmd.sharding_of(t).spec == (None, "d")
    compiled = metrics.compiles()
    u = spmd.mark_sharding(torch.ones(8, 8).to("xla"), LINE, ("d", None))
    spmd.mark_sharding(u, LINE, (None, "d"))
    spmd.mark_sharding(u, LINE, (None, "d"))  # it is there: nothing moves
    assert metrics.compiles() == compiled and count("Reshard") == first + 2
    assert t.cpu().equal(torch.arange(64.0).view(8, 8)) and u.sum().item() == 64


def case_a_tensor_that_is_up_already_is_cut():
    t = torch.arange(64.0, device="xla").view(8, 8) * 2
    torch_pjrt.sync()
    assert torch_pjrt.state(t) == "device" and spmd.sharding_of(t) is None
    spmd.mark_sharding(t, LINE, ("d", None))
    assert [s.data.shape for s in spmd.local_shards(t)] == [(1, 8)] * 8
    assert t.cpu().equal(torch.arange(64.0).view(8, 8) * 2)


def case_clearing_a_sharding_puts_the_whole_on_every_device():
    t = spmd.mark_sharding(torch.arange(64.0).view(8, 8).to("xla"), LINE, ("d", None))
    spmd.clear_sharding(t)
    assert spmd.sharding_of(t).replicated and spmd.sharding_of(t).shard_shape == (8, 8)
    assert t.cpu().equal(torch.arange(64.0).view(8, 8))


def case_sharded_tensors_are_read_as_any_other():  # X#5782
    t = spmd.mark_sharding(torch.arange(16.0).view(8, 2).to("xla"), LINE, ("d", None))
    assert "tensor" in repr(t) and t[3, 1].item() == 7 and t.tolist()[7] == [14.0, 15.0]
    assert t.cpu().numpy().sum() == 120 and bool((t >= 0).all())


def case_a_submesh_of_other_devices_works():
    mesh = spmd.Mesh(range(8), (2, 4), ("x", "y")).sub(x=1)
    assert mesh.device_ids == [4, 5, 6, 7]
    t = spmd.mark_sharding(torch.arange(32.0).view(8, 4).to("xla"), mesh, ("y", None))
    y = t * 2 + 1
    assert y.cpu().equal(torch.arange(32.0).view(8, 4) * 2 + 1)
    assert spmd.sharding_of(y).devices == (4, 5, 6, 7)


def case_a_permuted_mesh_works():
    mesh = spmd.Mesh([7, 6, 5, 4, 3, 2, 1, 0], (8,), ("d",))
    host = torch.arange(32.0).view(8, 4)
    t = spmd.mark_sharding(host.to("xla"), mesh, ("d", None))
    assert spmd.local_shards(t)[7].data.equal(host[:1])
    y = spmd.mark_sharding(host.to("xla"), LINE, ("d", None))
    assert (t - y).cpu().abs().sum() == 0
    assert (t @ host.T.to("xla")).cpu().equal(host @ host.T)


def case_values_of_two_meshes_do_not_meet():
    low, high = spmd.Mesh(range(4), (4,), ("d",)), spmd.Mesh(range(4, 8), (4,), ("d",))
    a = spmd.mark_sharding(torch.ones(8, 4).to("xla"), low, ("d", None))
    b = spmd.mark_sharding(torch.ones(8, 4).to("xla"), high, ("d", None))
    c = a + b
    with pytest.raises(ValueError, match=r"devices 0,1,2,3 .* and on devices 4,5,6,7"):
        c.cpu()
    del c
    assert a.sum().item() == b.sum().item() == 32


# ---- values


def case_the_output_shows_its_real_sharding():  # X#7846
    x, w = torch.ones(64, 32, device="xla"), torch.ones(32, 16, device="xla")
    spmd.mark_sharding(x, LINE, ("d", None))
    y = x @ w
    assert spmd.sharding_of(y) is None
    torch_pjrt.sync()
    s = spmd.sharding_of(y, LINE)
    assert s.shard_shape == (8, 16) and s.real and s.spec == ("d", None)
    assert y.sum().item() == 64 * 32 * 16


def case_a_replicated_argument_stays_whole():
    x, w = torch.ones(64, 32, device="xla"), torch.ones(32, 16, device="xla")
    torch_pjrt.sync()
    y = x @ w
    spmd.mark_sharding(y, LINE, (None, "d"))
    z = y.tanh()
    torch_pjrt.sync()
    assert w.sum().item() == 512 and z.shape == (64, 16)
    assert spmd.sharding_of(z, LINE).spec == (None, "d")
    assert spmd.sharding_of(w).replicated
    assert (w + 1).sum().item() == 1024


def case_an_asked_output_sharding_is_chosen():  # X#5508, T#2975
    x = spmd.mark_sharding(torch.randn(8, 16).to("xla"), GRID, ("x", None))
    w = spmd.mark_sharding(torch.randn(16, 8).to("xla"), GRID, (None, "y"))
    y = spmd.mark_sharding(x @ w, GRID, (None, "y"))
    assert spmd.sharding_of(y).spec == (None, "y") and not spmd.sharding_of(y).real
    want = x.cpu() @ w.cpu()
    torch.testing.assert_close(y.cpu(), want)
    assert spmd.sharding_of(y, GRID).spec == (None, "y") and spmd.sharding_of(y).real


def case_a_later_value_does_not_inherit_a_constraint():
    x = torch.ones(8, 8, device="xla")
    y = spmd.mark_sharding(x + 1, LINE, ("d", None))
    y = y + 0
    y.copy_(torch.ones(8, 8, device="xla") * 3)
    assert spmd.sharding_of(y) is None
    assert y.sum().item() == 192


def case_a_view_of_a_pending_value_is_marked():
    x = torch.arange(64.0, device="xla") * 1
    v = spmd.mark_sharding(x.view(8, 8), LINE, ("d", None))
    y = v * 2
    torch_pjrt.sync()
    assert spmd.sharding_of(y, LINE).spec == ("d", None)
    assert y.cpu().equal(torch.arange(64.0).view(8, 8) * 2) and x.sum().item() == 2016


def case_gradients_are_constrained_with_their_values():
    w = torch.ones(16, 8, device="xla", requires_grad=True)
    x = torch.ones(8, 16, device="xla")
    y = spmd.mark_sharding_with_gradients(x @ w, LINE, ("d", None))
    y.sum().backward()
    for t in (y, w.grad):  # the gradient's graph does not need y's value
        text = torch_pjrt.graph.of(t).hlo
        assert text.count("sdy.sharding_constraint") == 1, text
    assert w.grad.sum().item() == 8 * 16 * 8


def case_numbers_are_those_of_one_device():
    torch.manual_seed(0)
    host = torch.randn(16, 8, 24)
    table, index = torch.randn(40, 16), torch.randint(40, (8, 8))
    image, kernel = torch.randn(8, 3, 9, 9), torch.randn(4, 3, 3, 3)
    ops = {
        "sum": lambda x: x.sum(0),
        "softmax": lambda x: x.softmax(0),
        "sort": lambda x: x.sort(0).values,
        "cumsum": lambda x: x.cumsum(0),
        "argmax": lambda x: x.argmax(0),
        "norm": lambda x: F.layer_norm(x, (8, 24)),
        "cat": lambda x: torch.cat([x, x.flip(0)], 0),
        "matmul": lambda x: x @ x.transpose(1, 2),
        "mean": lambda x: x.mean(),
        "topk": lambda x: x.topk(3, 0).values,
        "gather": lambda x: x.gather(0, torch.zeros(2, 8, 24, dtype=torch.long, device=x.device)),
        "odd": lambda x: x[1:8].exp(),
        "roll": lambda x: x.roll(3, 0),
    }
    for name, f in ops.items():
        for spec in (("d", None, None), (None, "d", None), (None, None, "d")):
            x = spmd.mark_sharding(host.to("xla"), LINE, spec)
            torch.testing.assert_close(f(x).cpu(), f(host), msg=lambda m, n=name: f"{n}: {m}")
    t = spmd.mark_sharding(table.to("xla"), LINE, ("d", None))
    assert F.embedding(index.to("xla"), t).cpu().equal(F.embedding(index, table))
    i = spmd.mark_sharding(image.to("xla"), LINE, ("d", None, None, None))
    torch.testing.assert_close(
        F.conv2d(i, kernel.to("xla")).cpu(), F.conv2d(image, kernel), rtol=1e-5, atol=1e-5
    )
    logits, target = torch.randn(16, 10), torch.randint(10, (16,))
    p = spmd.mark_sharding(logits.to("xla"), LINE, ("d", None))
    torch.testing.assert_close(
        F.cross_entropy(p, target.to("xla")).cpu(), F.cross_entropy(logits, target)
    )


def case_a_mask_is_the_same_on_every_mesh():
    def mask(mesh=None, spec=None):
        torch.manual_seed(0)
        x = torch.ones(64, 16, device="xla")
        if spec:
            spmd.mark_sharding(x, mesh, spec)
        return F.dropout(x, 0.5).cpu()

    one = mask()
    assert one.eq(0).any() and one.eq(2).any()
    for mesh, spec in ((LINE, ("d", None)), (LINE, (None, "d")), (GRID, ("x", "y"))):
        assert mask(mesh, spec).equal(one), spec


def case_each_device_makes_its_own_part_of_a_mask():
    for mesh, spec in ((LINE, ("d", None)), (GRID, ("x", "y"))):
        x = spmd.mark_sharding(torch.ones(640, 48, device="xla"), mesh, spec)
        y = F.dropout(x, 0.5)
        torch_pjrt.sync()
        text = optimized()
        assert "[640,48]" not in text, text  # of any type
        assert "f32[80,48]" in text or "f32[320,12]" in text, text
        assert 0.4 < y.cpu().count_nonzero().item() / y.numel() < 0.6


# ---- tensors as torch knows them


def case_what_shares_or_copies_a_tensor_keeps_its_sharding():
    t = spmd.mark_sharding(torch.arange(64.0).view(8, 8).to("xla"), LINE, ("d", None))
    alike = {
        "detach": t.detach(),
        "clone": t.clone(),
        "deepcopy": copy.deepcopy(t),
        "data": t.data,
        "zeros_like": torch.zeros_like(t),
        "ones_like": torch.ones_like(t),
    }
    torch_pjrt.sync()
    for name, other in alike.items():
        assert (other + 0).sum().item() >= 0
        assert spmd.sharding_of(other, LINE).spec == ("d", None), name
    t.add_(1)
    t.mul_(2)
    torch_pjrt.sync()
    assert spmd.sharding_of(t, LINE).spec == ("d", None)
    assert t.cpu().equal((torch.arange(64.0).view(8, 8) + 1) * 2)


def case_host_bytes_written_into_a_sharded_tensor_go_where_it_is():
    t = spmd.mark_sharding(torch.zeros(8, 8).to("xla"), LINE, ("d", None))
    t.copy_(torch.arange(64.0).view(8, 8))
    torch_pjrt.sync()
    assert (t * 1).sum().item() == 2016 and spmd.sharding_of(t, LINE).spec == ("d", None)


def case_a_state_dict_round_trip_keeps_shardings():
    model = spmd.fully_shard(nn.Linear(16, 8).to("xla"), LINE)
    saved = {k: v.cpu() for k, v in model.state_dict().items()}
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    model.load_state_dict(saved)
    x = torch.randn(4, 16)
    y = model(x.to("xla"))
    torch_pjrt.sync()
    assert spmd.sharding_of(model.weight, LINE).spec == ("d", None)
    torch.testing.assert_close(y.cpu(), F.linear(x, saved["weight"], saved["bias"]))


def case_use_spmd_may_be_called_at_any_time():  # X#9735
    a = torch.ones(8, device="xla")
    torch.manual_seed(1)
    spmd.use_spmd()
    assert spmd.is_spmd() and spmd.virtual_device() == "SPMD:0"
    b = spmd.mark_sharding(torch.ones(8, device="xla"), LINE, ("d",))
    assert (a + b).sum().item() == 16


def case_the_picture_shows_who_holds_what():
    t = spmd.mark_sharding(torch.zeros(8, 16).to("xla"), GRID, (None, "y"))
    picture = spmd.visualize(t)
    assert "parts of [8, 4]" in picture and "| 0,4 | 1,5 | 2,6 | 3,7 |" in picture, picture
    rows = spmd.visualize(spmd.mark_sharding(torch.zeros(8, 16).to("xla"), GRID, ("x", "y")))
    assert "| 0 | 1 | 2 | 3 |" in rows and "| 4 | 5 | 6 | 7 |" in rows
    assert "on one device" in spmd.visualize(torch.ones(3, device="xla"))


# ---- programs


def case_equal_graphs_with_other_shardings_are_two_programs_with_the_reason():
    def run(spec):
        x = spmd.mark_sharding(torch.ones(24, 40).to("xla"), LINE, spec)
        y = (x * 3).cos()
        torch_pjrt.sync()
        return y

    compiled = metrics.compiles()
    run(("d", None))
    run(("d", None))
    assert metrics.compiles() == compiled + 1
    run((None, "d"))
    assert metrics.compiles() == compiled + 2
    reasons = [str(r) for r in torch_pjrt.explain().compiles[-1].reasons]
    assert any("sharding of arg 0" in r for r in reasons), reasons


def case_replicated_has_one_spelling():  # X#9755
    w = torch.ones(8, 24, device="xla") * 1.5
    torch_pjrt.sync()
    compiled = metrics.compiles()
    for _ in range(3):  # first on one device, then on all
        x = spmd.mark_sharding(torch.ones(16, 8).to("xla"), LINE, ("d", None))
        y = x @ w
        torch_pjrt.sync()
    assert metrics.compiles() == compiled + 1
    spmd.mark_sharding(w, LINE, (None, None))
    x = spmd.mark_sharding(torch.ones(16, 8).to("xla"), LINE, ("d", None))
    y = x @ w
    torch_pjrt.sync()
    assert metrics.compiles() == compiled + 1 and y.sum().item() == 16 * 24 * 12


def case_elementwise_chains_need_no_collective():
    x = spmd.mark_sharding(torch.randn(64, 32).to("xla"), LINE, ("d", None))
    y = ((x * 2).sin() + x.exp()).relu()
    torch_pjrt.sync()
    assert spmd.sharding_of(y, LINE).spec == ("d", None)
    assert collectives(optimized()) == {}


def case_column_then_row_parallel_needs_one_all_reduce():
    torch.manual_seed(0)
    a, b, x = torch.randn(16, 64), torch.randn(64, 16), torch.randn(4, 16)
    first = spmd.mark_sharding(a.to("xla"), LINE, (None, "d"))
    second = spmd.mark_sharding(b.to("xla"), LINE, ("d", None))
    y = torch.relu(x.to("xla") @ first) @ second
    torch_pjrt.sync()
    found = collectives(optimized())
    assert found in ({"all-reduce": 1}, {"reduce-scatter": 1}), found
    torch.testing.assert_close(y.cpu(), torch.relu(x @ a) @ b, rtol=1e-5, atol=1e-4)


def case_a_batch_split_only_reduces_gradients():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).to("xla")
    x = spmd.shard_batch(torch.randn(32, 16), LINE)
    F.mse_loss(model(x), x[:, :8].detach()).backward()
    torch_pjrt.sync()
    found = collectives(optimized())
    assert set(found) == {"all-reduce"}, found


# ---- compiled and captured


def case_a_compiled_function_takes_sharded_tensors():
    @torch.compile(backend="openxla")
    def f(x, w):
        return torch.tanh(x @ w)

    x, w = torch.randn(16, 8), torch.randn(8, 24)
    sharded = spmd.mark_sharding(x.to("xla"), LINE, ("d", None))
    for _ in range(2):
        y = f(sharded, w.to("xla"))
    torch.testing.assert_close(y.cpu(), torch.tanh(x @ w), rtol=1e-5, atol=1e-5)
    assert spmd.sharding_of(y).shard_shape == (2, 24)


def case_a_compiled_function_takes_tensors_sharded_otherwise_than_before():
    @torch.compile(backend="openxla")
    def f(x):
        return x * 2 + 1

    x = torch.arange(64.0).view(8, 8)
    for spec in (None, ("d", None), (None, "d"), (None, None), None, ("d", None)):
        t = x.to("xla")
        y = f(t if spec is None else spmd.mark_sharding(t, LINE, spec))
        assert torch.equal(y.cpu(), x * 2 + 1)
        if spec and "d" in spec:
            assert spmd.sharding_of(y, LINE).spec == spec
    compiled = metrics.compiles()
    f(spmd.mark_sharding(x.to("xla"), LINE, (None, "d")))
    assert metrics.compiles() == compiled, "a sharding that came before has its program"


def case_a_captured_step_is_captured_again_for_another_sharding():
    step = torch_pjrt.capture(lambda x: x * 2)
    x = torch.arange(64.0).view(8, 8)
    for spec in (None, None, None, ("d", None), ("d", None), (None, "d"), None):
        t = x.to("xla")
        y = step(t if spec is None else spmd.mark_sharding(t, LINE, spec))
        assert torch.equal(y.cpu(), x * 2)


def case_a_captured_step_runs_on_the_mesh():
    torch.manual_seed(0)
    w = spmd.mark_sharding(torch.ones(16, 8).to("xla"), LINE, ("d", None))

    @torch_pjrt.capture
    def step(x):
        w.mul_(0.5)
        return (x @ w).sum()

    x = torch.ones(4, 16, device="xla")
    values = [step(x).item() for _ in range(4)]
    assert values == [4 * 16 * 8 * 0.5 ** (i + 1) for i in range(4)], values
    assert spmd.sharding_of(w, LINE).spec == ("d", None)


# ---- training


class Block(nn.Module):
    def __init__(self, width, heads, drop):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            p.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for p in self.qkv(self.norm1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.narrow(F.gelu(self.wide(self.norm2(x)))))


class GPT(nn.Module):
    def __init__(self, words=64, width=32, layers=4, drop=0.1):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, 4, drop) for _ in range(layers)))
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        return self.head(self.blocks(self.tokens(ids)))


def mlp():
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 8))


def batch_of(kind):
    g = torch.Generator().manual_seed(1)
    if kind == "gpt":
        ids = torch.randint(64, (8, 17), generator=g)
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    return torch.randn(16, 16, generator=g), torch.randint(8, (16,), generator=g)


def train(kind, mesh=None, fsdp=False, steps=10):
    """Losses, compiles after step 1, and live bytes of each device while it trains."""
    torch.manual_seed(0)
    model = (GPT() if kind == "gpt" else mlp()).to("xla")
    if mesh and fsdp:
        spmd.fully_shard(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(7)
    losses, compiled = [], 0
    for i in range(steps):
        if i == 1:
            compiled = metrics.compiles()
        x, y = (t.to("xla") for t in batch_of(kind))
        if mesh:
            spmd.shard_batch(x, mesh), spmd.shard_batch(y, mesh)
        optimizer.zero_grad(set_to_none=True)
        out = model(x)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))
        loss.backward()
        optimizer.step()
        torch_pjrt.sync()
        losses.append(loss.item())
    return losses, metrics.compiles() - compiled, model, optimizer


REFERENCE: dict = {}


def reference(kind):
    if kind not in REFERENCE:
        REFERENCE[kind] = train(kind)[0]
    return REFERENCE[kind]


def check_training(kind, shape, fsdp):
    devices = 1
    for n in shape:
        devices *= n
    mesh = spmd.Mesh(range(devices), shape, ("x", "y")[: len(shape)])
    losses, later, model, optimizer = train(kind, mesh, fsdp)
    off = max(abs(a - b) for a, b in zip(losses, reference(kind), strict=True))
    assert off < 1e-5, (off, losses, reference(kind))
    assert later == 0, f"{later} compiles behind step 1"
    if fsdp:
        for p in model.parameters():
            s = spmd.sharding_of(p, mesh)
            state = optimizer.state[p]["exp_avg"]
            assert spmd.sharding_of(state, mesh).spec == s.spec, (s, spmd.sharding_of(state))


def case_an_mlp_trains_with_a_split_batch():
    check_training("mlp", (8,), False)


def case_an_mlp_trains_fully_sharded_on_8():
    check_training("mlp", (8,), True)


def case_an_mlp_trains_fully_sharded_on_2x4():
    check_training("mlp", (2, 4), True)


def case_an_mlp_trains_fully_sharded_on_4x2():
    check_training("mlp", (4, 2), True)


def case_an_mlp_trains_fully_sharded_on_4x1():
    check_training("mlp", (4, 1), True)


def case_a_gpt_trains_with_a_split_batch():
    check_training("gpt", (8,), False)


def case_a_gpt_trains_fully_sharded_on_8():
    check_training("gpt", (8,), True)


def case_a_gpt_trains_fully_sharded_on_2x4():
    check_training("gpt", (2, 4), True)


def case_a_gpt_trains_fully_sharded_on_4x2():
    check_training("gpt", (4, 2), True)


def case_a_gpt_trains_fully_sharded_on_4x1():
    check_training("gpt", (4, 1), True)


def barriers(model):
    """The operands of each barrier of a step of the model."""
    model(torch.ones(16, 64).to("xla")).square().mean().backward()
    text = graph.of([p.grad for p in model.parameters()]).hlo
    lines = [line for line in text.splitlines() if '"stablehlo.optimization_barrier"' in line]
    return sorted(len(line.split("(")[1].split(",")) for line in lines)


def blocks_of_two():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(3)))


def case_each_block_has_a_barrier_with_its_weights_and_one_for_its_gradients():
    model = spmd.fully_shard(blocks_of_two().to("xla"), LINE)
    # Forward: an input, a weight and a bias; the first block's input takes no gradient.
    assert barriers(model) == [2, 3, 3, 3, 3, 3]
    assert barriers(spmd.fully_shard(blocks_of_two().to("xla"), LINE, blocks=())) == []


def case_a_barrier_keeps_parameters_dtypes_and_second_gradients():
    model = spmd.fully_shard(nn.Linear(8, 1, bias=False).to("xla"), LINE)
    kept = model.weight
    x = torch.ones(8, 8, device="xla", requires_grad=True)
    (first,) = torch.autograd.grad(model(x).pow(3).sum(), x, create_graph=True)
    first.sum().backward()
    plain = nn.Linear(8, 1, bias=False)
    plain.load_state_dict({"weight": model.weight.detach().cpu()})
    y = torch.ones(8, 8, requires_grad=True)
    (other,) = torch.autograd.grad(plain(y).pow(3).sum(), y, create_graph=True)
    other.sum().backward()
    assert model.weight is kept and "weight" not in model.__dict__
    torch.testing.assert_close(model.weight.grad.cpu(), plain.weight.grad)
    torch.testing.assert_close(x.grad.cpu(), y.grad)


def case_weights_are_held_once():
    torch_pjrt.sync(wait=True)
    before = [live(d) for d in range(8)]
    given = [torch_pjrt.memory(d)["donated_bytes"] for d in range(8)]
    model = spmd.fully_shard(nn.Linear(256, 512, bias=False).to("xla"), LINE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x = spmd.shard_batch(torch.ones(16, 256), LINE)
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch_pjrt.sync(wait=True)
        del x
    part = 256 * 512 * 4 // 8
    for d in range(8):
        assert part <= live(d) - before[d] < 1.5 * part, (d, live(d) - before[d], part)
        assert torch_pjrt.memory(d)["donated_bytes"] - given[d] == 3 * part


CASES = {n[5:]: f for n, f in list(globals().items()) if n.startswith("case_")}


def main(names: list[str], cases: dict) -> None:
    """Runs the cases named, or all of them."""
    torch.set_num_threads(1)
    found = {}
    for name in names or cases:
        try:
            cases[name]()
            found[name] = ""
        except BaseException:
            found[name] = traceback.format_exc()
        print(f"{name}: {'ok' if not found[name] else found[name]}", file=sys.stderr, flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:], CASES)
