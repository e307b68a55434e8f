"""Cases of test_spmd.py: tensors on several meshes, checkpoints, collectives and their report."""

import copy
import os
import sys
import tempfile

import pytest
import torch
from spmd_cases import GRID, LINE, collectives, live, main, mlp, optimized
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.nn import functional as F

import torch_pjrt
from torch_pjrt import checkpoint, graph, manual, metrics, spmd

LOW, HIGH = spmd.Mesh(range(4), (4,), ("d",)), spmd.Mesh(range(4, 8), (4,), ("d",))


def on(mesh, value=1.0):
    return spmd.mark_sharding(torch.full((8, 4), value).to("xla"), mesh, ("d", None))


# ---- several sets of devices


def case_each_set_of_devices_is_a_program_of_its_own():
    a, b, alone = on(LOW), on(HIGH, 2.0), torch.full((3,), 5.0).to("xla")
    torch_pjrt.sync(wait=True)
    runs = (
        metrics.timers()["ExecuteReplicated"][0] if "ExecuteReplicated" in metrics.timers() else 0
    )
    x, y, z = a * 2, b * 3, alone + 1
    torch_pjrt.sync()
    assert metrics.timers()["ExecuteReplicated"][0] == runs + 2
    assert spmd.sharding_of(x).devices == (0, 1, 2, 3)
    assert spmd.sharding_of(y).devices == (4, 5, 6, 7)
    assert spmd.sharding_of(z) is None, "a value that no mesh needs stays on its one device"
    assert [t.sum().item() for t in (x, y, z)] == [64.0, 192.0, 18.0]


def case_steps_on_two_meshes_compile_once():
    a, b = on(LOW), on(HIGH)
    for step in range(4):
        if step == 1:
            compiled = metrics.compiles()
        a.mul_(2)
        b.add_(a.new_ones(8, 4))
        torch_pjrt.sync()
    assert metrics.compiles() == compiled
    assert a.sum().item() == 32 * 16 and b.sum().item() == 32 * 5
    assert spmd.sharding_of(a).devices == (0, 1, 2, 3)
    assert spmd.sharding_of(b).devices == (4, 5, 6, 7)


def uploads():
    return metrics.timers()["TransferToDevice"][0]


def case_numbers_that_come_again_stay_on_their_devices():
    a = on(LOW)
    counts = []
    for number in (3, 3, 3, 4):
        before = uploads()
        a.add_(number)
        torch_pjrt.sync()
        counts.append(uploads() - before)
    assert counts == [4, 4, 0, 4], "a copy a device"
    assert a.sum().item() == 32 * 14


def case_numbers_of_a_captured_step_are_uploaded_once():
    a = on(LOW)
    torch_pjrt.sync()
    step = torch_pjrt.capture(lambda x: x + 3)
    step(a)
    step(a)
    before = uploads()
    assert step(a).sum().item() == 32 * 4
    assert uploads() == before


def case_a_read_computes_all_sets_of_devices():
    a, b = on(LOW) + 1, on(HIGH) + 2
    assert a.sum().item() == 64
    assert torch_pjrt.state(b) == "device" and b.sum().item() == 96


def case_a_value_of_two_meshes_raises_at_its_line_and_spares_the_others():
    a, b = on(LOW), on(HIGH)
    sound, other = a * 3, b * 5
    crossing = a + b
    with pytest.raises(
        ValueError, match=r"aten::add.*devices 0,1,2,3 .*and on devices 4,5,6,7"
    ) as e:
        torch_pjrt.sync()
    text = str(e.value)
    assert "spmd_set_cases.py" in text.split("traced at")[1].splitlines()[0], text
    assert "try: use one mesh for both, or bring one to the host: x.cpu()" in text
    assert torch_pjrt.state(sound) == torch_pjrt.state(other) == "device"
    torch_pjrt.sync()  # it was told once; reading it tells it again
    with pytest.raises(ValueError, match="aten::add"):
        crossing.cpu()
    assert sound.sum().item() == 96 and other.sum().item() == 160
    crossing.zero_()
    assert crossing.sum().item() == 0


def case_a_tensor_moves_between_meshes_through_the_host_or_by_a_copy():
    a, b = on(LOW, 3.0), on(HIGH)
    b.copy_(a.cpu())
    assert (b * 1).sum().item() == 96
    torch_pjrt.sync()
    assert spmd.sharding_of(b).devices == (4, 5, 6, 7)
    b.copy_(a)  # on the device: it is where its value is
    assert (b + a).sum().item() == 192


def case_a_constraint_of_another_mesh_is_refused_in_words():
    x = on(LOW) + 1
    y = spmd.mark_sharding(x, HIGH, ("d", None))
    with pytest.raises(ValueError, match=r"devices 0,1,2,3.*cannot be on devices 4,5,6,7"):
        torch_pjrt.sync()
    del x, y


def case_weights_of_two_meshes_are_updated_in_place():
    a, b = on(LOW), on(HIGH)
    torch_pjrt.sync(wait=True)
    before = [live(d) for d in range(8)]
    given = [torch_pjrt.memory(d)["donated_bytes"] for d in (0, 4)]
    for _ in range(3):
        a.add_(1)
        b.mul_(2)
        torch_pjrt.sync(wait=True)
    assert [live(d) for d in range(8)] == before
    part = 8 * 4 * 4 // 4
    assert [
        torch_pjrt.memory(d)["donated_bytes"] - g for d, g in zip((0, 4), given, strict=True)
    ] == [3 * part] * 2


# ---- values and their places


def case_views_of_a_sharded_tensor_have_its_numbers():
    host = torch.arange(128.0).view(8, 16)
    t = spmd.mark_sharding(host.to("xla"), GRID, ("x", "y"))
    views = {
        "transpose": lambda x: x.t(),
        "rows": lambda x: x[2:7],
        "column": lambda x: x[:, 3],
        "view": lambda x: x.view(4, 2, 16),
        "flat": lambda x: x.reshape(-1)[5:100:3],
        "expand": lambda x: x[:1].expand(5, 16),
    }
    for name, f in views.items():
        assert f(t).cpu().equal(f(host)), name
        assert (f(t) * 2).cpu().equal(f(host) * 2), name
    t[1:3].mul_(2)
    host[1:3].mul_(2)
    torch_pjrt.sync()
    assert t.cpu().equal(host) and spmd.sharding_of(t, GRID).spec == ("x", "y")


def case_a_program_s_arguments_are_the_bytes_of_its_shards():
    w = spmd.mark_sharding(torch.ones(64, 256).to("xla"), GRID, ("x", "y"))
    b = spmd.mark_sharding(torch.ones(256).to("xla"), GRID, (None,))
    torch_pjrt.sync(wait=True)
    y = (w + b).sin()
    torch_pjrt.sync()
    memory = torch_pjrt.graph.last().program().memory
    assert memory["arguments"] == 64 * 256 * 4 // 8 + 256 * 4, memory
    assert memory["outputs"] == 64 * 256 * 4 // 8 and y.sum().item() != 0


@torch_pjrt.tiers("small")
def trained(mesh=None, place=None, steps=5):
    torch.manual_seed(0)
    model = mlp().to("xla").eval()
    if place:
        place(model)
    o = torch.optim.AdamW(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(3)
    x, y = torch.randn(16, 16, generator=g), torch.randint(8, (16,), generator=g)
    for step in range(steps):
        if step == 1:
            compiled = metrics.compiles()
        a, b = x.to("xla"), y.to("xla")
        if mesh:
            spmd.shard_batch(a, mesh)
        o.zero_grad(set_to_none=True)
        F.cross_entropy(model(a), b).backward()
        o.step()
        torch_pjrt.sync()
    assert metrics.compiles() == compiled
    return model


def case_tensor_parallel_and_two_dimensional_specs_train_as_one_device():
    want = [p.detach().cpu() for p in trained().parameters()]

    def tensor_parallel(m):
        spmd.mark_sharding(m[0].weight, GRID, ("y", None))
        spmd.mark_sharding(m[0].bias, GRID, ("y",))
        spmd.mark_sharding(m[3].weight, GRID, (None, "y"))

    def both(m):
        spmd.mark_sharding(m[0].weight, GRID, ("y", "x"))
        spmd.mark_sharding(m[3].weight, GRID, ("x", "y"))

    for place in (tensor_parallel, both):
        model = trained(GRID, place)
        for p, q in zip(model.parameters(), want, strict=True):
            torch.testing.assert_close(p.detach().cpu(), q, rtol=1e-5, atol=1e-5)
        assert spmd.sharding_of(model[3].weight, GRID).spec[1] == "y"


def case_fully_sharded_layers_gather_weights_and_scatter_gradients():
    layers = [nn.Linear(64, 64, bias=False) for _ in range(3)]
    model = spmd.fully_shard(nn.Sequential(*layers).to("xla"), LINE)
    x = spmd.shard_batch(torch.randn(256, 64), LINE)
    model(x).square().mean().backward()
    torch_pjrt.sync()
    found = collectives(optimized())
    # Weights are gathered, once or for each pass; the CPU reduces gradients and cuts them.
    assert 1 <= found.get("all-gather", 0) <= 6, found
    assert found.get("reduce-scatter", 0) + found.get("all-reduce", 0) >= 1, found
    assert set(found) <= {"all-gather", "reduce-scatter", "all-reduce"}, found
    for p in model.parameters():
        assert spmd.sharding_of(p, LINE).spec == ("d", None)


def case_another_mesh_is_one_new_program_with_the_reason():
    def run(mesh, spec):
        y = spmd.mark_sharding(torch.ones(48, 16).to("xla"), mesh, spec).cos()
        torch_pjrt.sync()
        return y

    run(LINE, ("d", None))
    compiled = metrics.compiles()
    run(GRID, ("x", None))
    run(GRID, ("x", None))
    assert metrics.compiles() == compiled + 1
    reasons = [str(r) for r in torch_pjrt.explain().compiles[-1].reasons]
    assert any("sharding of arg 0 f32[48,16] moved" in r for r in reasons), reasons


def case_a_forked_child_is_refused_in_words():
    spmd.use_spmd()
    on(LOW)
    torch_pjrt.sync(wait=True)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            on(LOW)
            os.write(write, b"nothing was raised")
        except BaseException as e:
            os.write(write, str(e).encode()[:2000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as f:
        text = f.read().decode()
    os.waitpid(pid, 0)
    assert "fork" in text, text


def case_a_mark_with_gradients_is_kept_by_a_traced_graph():
    from functorch.compile import aot_function, make_boxed_func

    graphs = []

    def keep(graph, _):
        graphs.append([str(n.target) for n in graph.graph.nodes])
        return make_boxed_func(graph)

    def f(x):
        return spmd.mark_sharding_with_gradients(torch.sin(x), LINE, ("d",)) + 42

    x = torch.randn(8).to("xla").requires_grad_()
    y = aot_function(f, keep)(x)
    y.sum().backward()
    torch_pjrt.sync()
    assert [g.count("torch_pjrt.constrain.default") for g in graphs] == [1, 1]
    for t in (y, x.grad):
        assert spmd.sharding_of(t, LINE).spec == ("d",)
    torch.testing.assert_close(x.grad.cpu(), x.detach().cpu().cos())


def case_tensors_are_marked_inside_torch_compile():  # X#6916
    @torch.compile(backend="openxla", fullgraph=True)
    def f(x, w):
        h = spmd.mark_sharding(torch.tanh(x @ w), GRID, ("x", "y"))
        return (h * 2).sum(0)

    x, w = torch.randn(8, 16), torch.randn(16, 12)
    a, b = x.to("xla"), w.to("xla").requires_grad_()
    for _ in range(2):
        b.grad = None
        y = f(a, b)
        y.sum().backward()
    w.requires_grad_()
    want = (torch.tanh(x @ w) * 2).sum(0)
    want.sum().backward()
    torch.testing.assert_close(y.detach().cpu(), want.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(b.grad.cpu(), w.grad, rtol=1e-5, atol=1e-5)
    assert spmd.sharding_of(y) is not None, "the program ran on the mesh"


# ---- manual regions


def case_a_manual_region_computes_on_parts_with_its_own_collectives():
    seen = []

    @manual.region(GRID, in_specs=[("x", "y"), (None, None)], out_specs=[("x", "y"), ()])
    def f(x, w):
        seen.append(tuple(x.shape))
        total = manual.psum(x.sum(), ("x", "y"))
        return x * 2 + w[: x.shape[0], : x.shape[1]] + total, manual.pmax(x.amax(), ("x", "y"))

    host, other = torch.arange(64.0).view(8, 8), torch.ones(8, 8)
    y, top = f(host.to("xla"), other.to("xla"))
    torch_pjrt.sync()
    assert seen == [(4, 2)]
    assert y.cpu().equal(host * 2 + 1 + host.sum()) and top.item() == 63
    assert spmd.sharding_of(y, GRID).spec == ("x", "y")


def check_each_collective(replicas):
    host = torch.arange(128.0).view(8, 16)
    x = spmd.mark_sharding(host.to("xla"), GRID, ("x", "y"))  # parts are [4, 4]

    def run(body, out, source=x, spec=("x", "y")):
        return manual.region(GRID, [spec], [out], replicas)(body)(source).cpu()

    blocks = host.view(2, 4, 4, 4).permute(0, 2, 1, 3)  # by x, y: [4, 4]
    assert run(lambda p: manual.psum(p, "y"), ("x", None)).equal(blocks.sum(1).reshape(8, 4))
    assert run(lambda p: manual.pmin(p, "x"), (None, "y")).equal(host.view(2, 4, 16).amin(0))
    assert run(lambda p: manual.pmean(p, "x"), (None, "y")).equal(host.view(2, 4, 16).mean(0))
    assert run(lambda p: manual.all_gather(p, "y", dim=1), ("x", None)).equal(host)
    assert run(lambda p: manual.psum_scatter(p, "y", dim=0), (("x", "y"), None)).equal(
        blocks.sum(1).reshape(8, 4)
    )
    swapped = run(lambda p: manual.all_to_all(p, "y", 0, 1), (("x", "y"), None))
    assert swapped.equal(host)
    ring = [(i, (i + 1) % 4) for i in range(4)]
    moved = run(lambda p: manual.ppermute(p, "y", ring), ("x", "y"))
    assert moved.equal(host.view(8, 4, 4).roll(1, 1).reshape(8, 16))
    one = run(lambda p: manual.ppermute(p, "x", [(0, 1)]), ("x", "y"))
    assert one[:4].eq(0).all() and one[4:].equal(host[:4])
    place = run(lambda p: torch.zeros_like(p) + manual.axis_index("y"), ("x", "y"))
    assert place[0].tolist() == [float(i // 4) for i in range(16)]
    assert run(lambda p: torch.zeros_like(p) + manual.axis_size(("x", "y")), ("x", "y")).eq(8).all()


def case_each_manual_collective_does_what_its_name_says():
    check_each_collective(replicas=False)


def case_each_manual_collective_does_it_between_replicas():
    check_each_collective(replicas=True)


def case_a_region_of_replicas_is_a_program_of_its_own_without_a_partitioner():
    @manual.region(LINE, [("d", None), (None, None)], [("d", None), ()], replicas=True)
    def f(x, w):
        y = x @ w + bias * 2  # of outside: whole on each device
        return y, manual.psum(y.sum(), "d")

    bias = torch.arange(24.0).to("xla")
    x, w = torch.randn(16, 32), torch.randn(32, 24)
    a, b = x.to("xla"), w.to("xla")
    want = x @ w + torch.arange(24.0) * 2
    pending = a.cos()
    f(a, b)
    assert torch_pjrt.state(pending) == "device", "what was pending is computed first"
    compiled = metrics.compiles()
    for _ in range(2):
        y, total = f(a, b)
    assert metrics.compiles() == compiled
    assert torch_pjrt.state(y) == "device"
    text = graph.last().hlo
    assert "sdy." not in text and "sharding" not in text and '"stablehlo.all_reduce"' in text
    assert "tensor<2x32xf32>" in text and "channel_handle" not in text, text
    assert spmd.sharding_of(y, LINE).spec == ("d", None) and spmd.sharding_of(y).real
    assert spmd.sharding_of(a) is None, "arguments stay where they are"
    torch.testing.assert_close(y.cpu(), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(total.cpu(), want.sum(), rtol=1e-4, atol=1e-3)


def case_data_parallel_training_by_replicas_equals_one_device():
    torch.manual_seed(0)
    host = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    model = copy.deepcopy(host).to("xla")
    weights = [p.detach() for p in model.parameters()]

    @manual.region(LINE, [("d", None), ("d", None)], [()] + [()] * 4, replicas=True)
    def gradients(x, y):
        with torch.enable_grad():
            leaves = [w.clone().requires_grad_() for w in weights]
            h = torch.tanh(x @ leaves[0].t() + leaves[1])
            loss = F.mse_loss(h @ leaves[2].t() + leaves[3], y)
            grads = torch.autograd.grad(loss, leaves)
        return tuple(manual.pmean(t, "d") for t in (loss.detach(), *grads))

    x, y = torch.randn(32, 16), torch.randn(32, 4)
    for _ in range(3):
        loss, *grads = gradients(x.to("xla"), y.to("xla"))
        with torch.no_grad():
            for w, g in zip(weights, grads, strict=True):
                w.sub_(0.1 * g)
        want = F.mse_loss(host(x), y)
        host.zero_grad()
        want.backward()
        with torch.no_grad():
            for p in host.parameters():
                p.sub_(0.1 * p.grad)
        torch.testing.assert_close(loss.cpu(), want.detach())
    for w, p in zip(weights, host.parameters(), strict=True):
        torch.testing.assert_close(w.cpu(), p.detach())


def case_a_region_of_replicas_is_refused_inside_a_traced_function():
    f = manual.region(LINE, [("d", None)], [("d", None)], replicas=True)(lambda p: p + 1)
    g = manual.region(LINE, [("d", None)], [("d", None)])(lambda p: f(p))
    x = torch.ones(64, 4, device="xla")
    with pytest.raises(RuntimeError, match="a region inside a region"):
        g(x)
    layers = [nn.Linear(4, 4).to("xla") for _ in range(2)]
    for layer in layers:
        layer.forward = f
    words = r"manual.region\(replicas=True\) is a program of its own"
    with torch.no_grad(), pytest.raises(RuntimeError, match=words):
        torch_pjrt.scan_layers(layers, x)
    assert f(x).eq(2).all()


def case_a_manual_region_is_one_program_with_the_collectives_it_names():
    @manual.region(LINE, in_specs=[("d", None), ("d", None)], out_specs=[("d", None)])
    def f(x, w):  # fully sharded by hand
        return torch.relu(x @ manual.all_gather(w, "d"))

    x, w = torch.randn(16, 32), torch.randn(32, 24)
    a = spmd.mark_sharding(x.to("xla"), LINE, ("d", None))
    b = spmd.mark_sharding(w.to("xla"), LINE, ("d", None))
    compiled = metrics.compiles()
    for _ in range(3):
        y = f(a, b) + 1
        torch_pjrt.sync()
    assert metrics.compiles() == compiled + 1
    assert collectives(optimized()) == {"all-gather": 1}
    torch.testing.assert_close(y.cpu(), torch.relu(x @ w) + 1, rtol=1e-5, atol=1e-5)


def case_a_permuted_mesh_has_its_own_groups_in_a_manual_region():
    mesh = spmd.Mesh([5, 2, 7, 4, 1, 6, 3, 0], (4, 2), ("a", "b"))
    host = torch.arange(32.0).view(8, 4)
    f = manual.region(mesh, [("a", "b")], [("a", None)])(lambda p: manual.all_gather(p, "b", 1))
    assert f(host.to("xla")).cpu().equal(host)


def case_what_a_manual_region_cannot_do_is_refused_in_words():
    x = torch.ones(8, 8, device="xla")
    with pytest.raises(RuntimeError, match=r"manual.all_reduce: called outside of a region"):
        manual.psum(x, "d")
    f = manual.region(LINE, [("d", None)], [("d", None)])(lambda p: manual.psum(p, "q"))
    with pytest.raises(ValueError, match="no axis 'q'"):
        f(x)
    same = manual.region(LINE, [("d", None)], [("d", None)])(lambda p: p)
    with pytest.raises(ValueError, match=r"63.*not divisible"):
        same(torch.ones(63, 8, device="xla"))
    with pytest.raises(ValueError, match="the tensor has 1 dims"):
        same(torch.ones(8, device="xla"))
    with pytest.raises(RuntimeError, match="requires a gradient, the region has none"):
        same(x.clone().requires_grad_())
    reads = manual.region(LINE, [("d", None)], [("d", None)])(lambda p: p * p.sum().item())
    with pytest.raises(RuntimeError, match="has to run on the device"):
        reads(x)
    assert (x + 1).sum().item() == 128


# ---- checkpoints


def state_of(mesh):
    torch.manual_seed(1)
    model = spmd.fully_shard(nn.Linear(32, 64).to("xla"), mesh)
    o = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.ones(8, 32, device="xla")).square().mean().backward()
    o.step()
    torch_pjrt.sync(wait=True)
    return model, o


def case_a_checkpoint_of_one_mesh_is_loaded_on_another_without_gathering():
    model, o = state_of(LINE)
    want = {k: v.cpu() for k, v in model.state_dict().items()}
    moment = o.state[model.weight]["exp_avg"].cpu()
    with tempfile.TemporaryDirectory() as folder:
        dcp.save({"model": model.state_dict(), "optimizer": o.state_dict()}, checkpoint_id=folder,
                 planner=checkpoint.SavePlanner())  # fmt: skip
        saved = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
        assert len(saved["model.weight"].chunks) == 8
        assert saved["model.weight"].chunks[3].sizes == torch.Size([8, 32])

        other = nn.Linear(32, 64).to("xla")
        spmd.mark_sharding(other.weight, GRID, ("y", "x"))
        spmd.mark_sharding(other.bias, GRID, ("x",))
        p = torch.optim.AdamW(other.parameters(), lr=1e-2)
        other(torch.zeros(8, 32, device="xla")).sum().backward()
        p.step()
        torch_pjrt.sync(wait=True)
        before = [live(d) for d in range(8)]
        for d in range(8):
            torch_pjrt._C.reset_peak_memory(d)
        state = {"model": other.state_dict(), "optimizer": p.state_dict()}
        dcp.load(state, checkpoint_id=folder, planner=checkpoint.LoadPlanner())
        # What a device has beyond its own parts is never a tensor's whole.
        for d in range(8):
            peak = torch_pjrt.memory(d)["peak_live_bytes"]
            assert peak - before[d] < 32 * 64 * 4 // 2, (d, peak - before[d])
        p.load_state_dict(state["optimizer"])
    assert other.weight.cpu().equal(want["weight"]) and other.bias.cpu().equal(want["bias"])
    assert spmd.sharding_of(other.weight, GRID).spec == ("y", "x")
    assert p.state[other.weight]["exp_avg"].cpu().equal(moment)
    assert (other.weight + 0).cpu().equal(want["weight"])


def case_a_checkpoint_of_whole_and_other_values_is_loaded_too():
    whole = torch.arange(6.0, device="xla").view(2, 3)
    everywhere = spmd.mark_sharding(torch.arange(8.0).to("xla"), LINE, (None,))
    pending = spmd.mark_sharding(torch.arange(16.0).to("xla"), LINE, ("d",)) * 2
    half = spmd.mark_sharding(torch.ones(8, 2, dtype=torch.bfloat16).to("xla"), LINE, ("d", None))
    with tempfile.TemporaryDirectory() as folder:
        state = {"a": whole, "b": everywhere, "c": pending, "d": half, "step": 7}
        dcp.save(state, checkpoint_id=folder, planner=checkpoint.SavePlanner())
        now = {
            "a": torch.zeros(2, 3, device="xla"),
            "b": torch.zeros(8, device="xla"),
            "c": spmd.mark_sharding(torch.zeros(16).to("xla"), GRID, (("y", "x"),)),
            "d": torch.zeros(8, 2, dtype=torch.bfloat16),
            "step": 0,
        }
        dcp.load(now, checkpoint_id=folder, planner=checkpoint.LoadPlanner())
    assert now["a"].cpu().equal(torch.arange(6.0).view(2, 3)) and now["step"] == 7
    assert now["b"].cpu().equal(torch.arange(8.0))
    assert now["c"].cpu().equal(torch.arange(16.0) * 2) and (now["d"] == 1).all()


# ---- what a run shows


def case_explain_lists_shardings_and_collectives_by_line():
    x = spmd.mark_sharding(torch.ones(64, 48).to("xla"), LINE, ("d", None))
    w = torch.ones(64, 48, device="xla") * 2
    total = (x * w).sum()
    torch_pjrt.sync()
    e = torch_pjrt.explain()
    rows = [
        s for s in e.shardings if s.type == "f32[64,48]" and "spmd_set_cases.py" in str(s.place)
    ]
    cut = next(s for s in rows if s.sharding.spec == ("d", None))
    assert cut.bytes == 8 * 48 * 4 and "parts of [8, 48]" in str(cut)
    key = torch_pjrt.graph.last().key
    (reduced,) = [c for c in e.collectives if c.key == key]
    assert reduced.kind == "all-reduce" and reduced.bytes <= 8 and reduced.runs == 1, reduced
    assert "spmd_set_cases.py" in reduced.line, reduced
    text = str(e)
    assert "on meshes" in text and "collectives, in one run of each program" in text
    assert total.item() == 64 * 48 * 2


def case_the_report_page_has_the_table_and_the_picture():
    from torch_pjrt import _report

    t = spmd.mark_sharding(torch.zeros(16, 24).to("xla"), GRID, ("x", "y"))
    torch_pjrt.sync()
    data = _report.data()
    row = next(s for s in data["shardings"] if s["type"] == "f32[16,24]")
    assert (
        row["spec"] == "x, y" and row["part"] == "[8, 6]" and "| 4 | 5 | 6 | 7 |" in row["picture"]
    )
    assert t.sum().item() == 0
    with tempfile.TemporaryDirectory() as folder:
        page = torch_pjrt.explain.report(os.path.join(folder, "page.html")).read_text()
    assert "On meshes" in page and "parts of [8, 6]" in page


def case_a_weight_that_is_gathered_in_each_step_is_a_finding():
    torch_pjrt.explain.clear()
    w = spmd.mark_sharding(torch.ones(80, 40).to("xla"), LINE, ("d", None))  # this line
    for _ in range(4):
        x = spmd.mark_sharding(torch.ones(640, 80).to("xla"), LINE, ("d", None))
        y = x @ w  # needs all of it
        torch_pjrt.sync()
    found = [f for f in torch_pjrt.explain.findings() if f.kind == "gathered weight"]
    (one,) = [f for f in found if "f32[80,40]" in f.text]
    assert "spmd_set_cases.py" in str(one.place) and "12.5 KiB" in one.cost, one
    assert "spmd_set_cases.py" in one.text.split("each of them (at")[1], one.text
    assert y.sum().item() == 640 * 40 * 80
    fsdp = spmd.fully_shard(nn.Linear(88, 104, bias=False).to("xla"), LINE)
    for _ in range(4):
        z = fsdp(spmd.shard_batch(torch.ones(640, 88), LINE))
        torch_pjrt.sync()
    found = [f for f in torch_pjrt.explain.findings() if f.kind == "gathered weight"]
    assert not [f for f in found if "f32[104,88]" in f.text], "fully_shard gathers by design"
    assert z.shape == (640, 104)
    key = torch_pjrt.graph.last().key
    assert any(c.kind == "all-gather" for c in torch_pjrt.explain().collectives if c.key == key)


CASES = {n[5:]: f for n, f in list(globals().items()) if n.startswith("case_")}

if __name__ == "__main__":
    main(sys.argv[1:], CASES)
