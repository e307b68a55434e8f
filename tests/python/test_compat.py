"""The distribution `torch_xla` (compat/torch_xla): its names run on torch_pjrt.

Each test runs in a process of its own: frameworks look for the package when they are imported.
"""

import os
from pathlib import Path

import pytest

COMPAT = Path(__file__).resolve().parents[2] / "compat" / "torch_xla"
HEAD = """
import torch, torch_pjrt
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
def told(f, *words):
    try:
        f()
    except NotImplementedError as e:
        assert all(w in str(e) for w in words), e
    else:
        raise AssertionError(f"{f} is not refused")
"""


@pytest.fixture(scope="session")
def with_compat(run_python):
    def run(code: str, **env: str) -> str:
        path = os.pathsep.join([str(COMPAT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        done = run_python(code=HEAD + code, PYTHONPATH=path, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


def test_a_training_script_of_torch_xla_runs(with_compat):
    said = with_compat("""
from torch_xla.amp import GradScaler, autocast, syncfree
from torch_xla.debug import metrics as met
from torch_xla.distributed import parallel_loader as pl
from torch_xla.distributed import xla_multiprocessing as xmp
from torch_xla.utils import utils as xu
from torch_xla.test import test_utils

def train(index, flags):
    assert flags == {"steps": 4}
    assert index == xr.global_ordinal() == 0 and xr.world_size() == 1
    torch.manual_seed(0)
    device = torch_xla.device()
    model = xmp.MpModelWrapper(torch.nn.Linear(4, 2)).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    data = xu.SampleGenerator((torch.ones(3, 4), torch.zeros(3, dtype=torch.int64)), 4)
    loader, tracker = pl.MpDeviceLoader(data, device), xm.RateTracker()
    assert len(loader) == 4 and loader._loader is data
    losses, said = [], []
    for step, (x, y) in enumerate(loader):
        assert x.device == device
        opt.zero_grad()
        with autocast(device):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        xm.optimizer_step(opt)
        tracker.add(3)
        losses.append(loss.detach())
        xm.add_step_closure(lambda s, l: said.append((s, l.item())), args=(step, loss.detach()))
    assert [s for s, _ in said] == [0, 1, 2, 3]
    assert said[-1][1] < said[0][1]
    assert tracker.global_rate() > 0
    test_utils.print_training_update(device, 3, losses[-1], tracker.rate(), tracker.global_rate())
    assert met.counter_value("CompiledCall") is None and "CompileTime" in met.metric_names()
    xm.master_print(met.short_metrics_report())

torch_xla.launch(train, args=({"steps": 4},))
xmp.spawn(train, args=({"steps": 4},), nprocs=1)
""")
    assert "| Training Device=xla:0 Step=3" in said


def test_devices_and_versions(with_compat):
    with_compat("""
assert str(torch_xla.device()) == "xla:0" == str(xm.xla_device())
assert torch_xla.device_count() == len(torch_xla.devices()) == xr.global_runtime_device_count()
assert xm.get_xla_supported_devices()[0] == "xla:0"
assert xm.xla_device_hw(torch_xla.device()) == xr.device_type() == "CPU"
assert torch_xla.real_devices()[0] == "CPU:0"
assert torch_xla.__version__ == torch.__version__.partition("+")[0]
assert xm.get_memory_info("xla:0")["bytes_used"] >= 0
assert xm.is_master_ordinal() and xm.is_xla_tensor(torch.ones(1, device="xla"))
a = torch.ones(2, device="xla")
ids = torch_xla._XLAC._xla_get_tensor_id
assert ids(a) == ids(a.view(1, 2)) != ids(a.clone())
xr.set_device_type("CPU")
""")


def test_the_precision_of_products_is_pytorchs_and_says_so(with_compat):
    said = with_compat("""
import torch_xla.backends as backends
assert backends.get_mat_mul_precision() == "highest"
backends.set_mat_mul_precision("default")
assert torch.get_float32_matmul_precision() == "medium"
assert backends.get_mat_mul_precision() == "default"
try:
    backends.set_mat_mul_precision("most")
except ValueError as e:
    assert "'most'" in str(e)
else:
    raise AssertionError("a word that nobody knows")
""")
    assert said.count("it holds for all devices of the process") == 1


def test_steps_sync_and_compile(with_compat):
    with_compat("""
x = torch.ones(2, device="xla")
with torch_xla.step():
    y = x + 1
assert torch_pjrt.state(y) == "device"
z = y + 1
assert torch_pjrt.state(z) == "ir"
torch_xla.sync()
assert torch_pjrt.state(z) == "device"
f = torch_xla.compile(lambda v: v * 3, full_graph=True)
assert f(x).tolist() == [3, 3]
with torch_xla.compile():
    w = x - 1
assert torch_pjrt.state(w) == "device"
def too_many(f):
    try:
        f()
    except RuntimeError as e:
        assert "max_different_graphs" in str(e), e
    else:
        raise AssertionError("one graph too many")
def doubled(v):
    return v * 2
torch_xla.compile(doubled, max_different_graphs=1)(x)
too_many(lambda: torch_xla.compile(doubled, max_different_graphs=1)(torch.ones(3).to("xla")))
def block():
    with torch_xla.compile(max_different_graphs=1):
        (x + 1).tolist()
        (x - 1).tolist()
too_many(block)
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    xm.mark_step(); xm.mark_step()
assert len([w for w in seen if "torch_xla.sync" in str(w.message)]) == 1
torch_xla.manual_seed(3); a = torch.rand(3, device="xla")
torch_xla.manual_seed(3); b = torch.rand(3, device="xla")
assert torch.equal(a.cpu(), b.cpu())
torch_xla.experimental.eager_mode(True) if hasattr(torch_xla, "experimental") else None
from torch_xla.experimental import eager_mode_context, is_eager_mode
with eager_mode_context(True):
    assert is_eager_mode()
g = torch.compile(lambda v: v.sin() * 2, backend="openxla")
assert torch.allclose(g(x).cpu(), torch.ones(2).sin() * 2)
""")


def test_graphs_and_calls_of_torch_compile_are_counted(with_compat):
    with_compat("""
from torch_xla.debug import metrics as met
graphs = lambda: met.counter_value("DynamoExtractCompiledGraph")
calls = lambda: [met.metric_data(f"RunCachedGraph{n}Data") for n in ("Input", "Output")]
f = torch.compile(lambda v: v.sin() * 2, backend="openxla", dynamic=True)
met.clear_all()
assert graphs() is None and calls() == [None, None]
for n in (4, 5, 5):
    f(torch.ones(n, 3, device="xla", requires_grad=True))
assert graphs() == 1 and [c[0] for c in calls()] == [3, 3]
assert met.metric_data("CompileTime")[0] == 2
f(torch.ones(4, 3, device="xla", requires_grad=True)).sum().backward()
assert graphs() == 2 and calls()[0][0] == 5  # backward is a graph of its own
met.clear_all()
f(torch.ones(4, 3, device="xla", requires_grad=True))
assert graphs() is None and calls()[0][0] == 1
assert met.counter_value("DynamoSyncInputExecuteTime") == 1  # ones were pending
""")


def test_in_eager_mode_compiled_functions_are_counted_apart_from_ops(with_compat):
    with_compat("""
from torch_xla.debug import metrics as met
from torch_xla.experimental import eager_mode_context
f = torch_xla.compile(lambda v: v.sin().cos())
with eager_mode_context(True):
    x = torch.ones(4, device="xla") + 1
    xm.wait_device_ops()
    met.clear_all()
    f(x)
    assert met.metric_data("ExecuteTime")[0] == 1
    assert "EagerOpExecuteTime" not in met.metric_names()
    y = x * 3 - 1
    assert met.metric_data("EagerOpExecuteTime")[0] == 2
    f(y)
    assert met.metric_data("ExecuteTime")[0] == 2
    assert met.metric_data("EagerOpExecuteTime")[0] == 2
""")


def test_a_pure_function_that_draws_by_a_seed_asks_for_it(with_compat):
    with_compat("""
from torch_xla.experimental.assume_pure import assume_pure
draw = assume_pure(lambda x: x + torch.rand_like(x), add_rng_seed_argument=True)
x = torch.zeros(3, device="xla")
assert torch.equal(draw(x, rng_seed=1), draw(x, rng_seed=1))
assert not torch.equal(draw(x, rng_seed=1), draw(x, rng_seed=2))
try:
    draw(x)
except AssertionError as e:
    assert "expected the keyword rng_seed" in str(e)
else:
    raise SystemExit("drew without a seed")
""")


def test_marks_of_places_are_ops_that_change_nothing(with_compat):
    with_compat("""
from torch_xla.experimental.stablehlo_custom_call import place_to_device, place_to_host
x = torch.arange(3., device="xla", requires_grad=True)
def f(v):
    return (place_to_device(place_to_host(v)) * 2).sum()
for g in (f, torch.compile(f, backend="openxla", fullgraph=True)):
    x.grad = None
    y = g(x)
    y.backward()
    assert y.item() == 6 and x.grad.tolist() == [2, 2, 2]
from torch.fx.experimental.proxy_tensor import make_fx
assert "place_to_host" in make_fx(place_to_host)(x.detach()).code
from torch_xla.core.xla_builder import create_placeholder_tensor
made = [create_placeholder_tensor((2,), torch.float32) for _ in range(2)]
assert len(set(torch_xla._XLAC._get_tensors_handle(made))) == 2
""")


def test_collectives_of_one_process_are_the_values(with_compat):
    with_compat("""
t = torch.arange(4., device="xla")
assert xm.all_reduce(xm.REDUCE_SUM, t).tolist() == [0, 1, 2, 3]
assert xm.all_reduce("sum", [t], scale=0.5)[0].tolist() == [0, .5, 1, 1.5]
assert xm.all_gather(t).tolist() == t.tolist()
assert xm.mesh_reduce("tag", {"a": t}, lambda d: len(d)) == 1
assert xm.rendezvous("x", b"p") == [b"p"]
assert xm.collective_permute(t, [[0, 0]]).tolist() == t.tolist()
m = torch.nn.Linear(2, 2).to("xla"); xm.broadcast_master_param(m)
assert xm._maybe_convert_to_cpu([t, 3])[0].device.type == "cpu"
assert xm.send_cpu_data_to_device([{"a": torch.ones(2)}], "xla")[0]["a"].device.type == "xla"
""")


def test_saving_and_exporting(with_compat, tmp_path):
    with_compat(f"""
folder = {str(tmp_path)!r}
m = torch.nn.Linear(3, 2).to("xla")
xm.save(m.state_dict(), folder + "/m.pt")
assert {{t.device.type for t in torch.load(folder + "/m.pt").values()}} == {{"cpu"}}
from torch_xla.stablehlo import exported_program_to_stablehlo, StableHLOGraphModule
x = torch.ones(1, 3, device="xla")
p = exported_program_to_stablehlo(torch.export.export(m, (x,)))
assert "stablehlo." in p.get_stablehlo_text()
p.save(folder + "/p")
for f in (p, StableHLOGraphModule.load(folder + "/p")):
    assert torch.allclose(f(x).cpu(), m(x).cpu())
torch_xla.save_torch_model_as_stablehlo(m, (x,), folder + "/q")
assert "stablehlo." in xm.get_stablehlo([m(x)])
from torch_xla.stablehlo import StableHLOExportOptions, save_as_stablehlo
found = StableHLOGraphModule.load(folder + "/p")._bundle
held = {{n: t.device.type for n, t in found.state_dict.items()}}
assert held == {{"weight": "cpu", "bias": "cpu"}}
assert [l.name for l in found.stablehlo_funcs[0].meta.input_locations] == ["", "weight", "bias"]
options = StableHLOExportOptions(export_weights=False)
bare = exported_program_to_stablehlo(torch.export.export(m, (x,)), options)
assert bare._bundle.state_dict == {{}} and torch.allclose(bare(x).cpu(), m(x).cpu())
options = StableHLOExportOptions(save_weights=False)
save_as_stablehlo(torch.export.export(m, (x,)), folder + "/r", options)
try:
    StableHLOGraphModule.load(folder + "/r")
except FileNotFoundError as e:
    assert "no weight 'weight'" in str(e) and "save the program with its weights" in str(e)
else:
    raise AssertionError("weights that nobody saved")
""")


def test_barriers_are_in_the_program_and_change_no_value_or_stride(with_compat):
    with_compat("""
from torch_xla.distributed.spmd import apply_backward_optimization_barrier
def barriers(tensors):
    return torch_pjrt.graph.of(tensors).hlo.count('"stablehlo.optimization_barrier"')
a, b = torch.arange(6., device="xla").view(2, 3).t(), torch.ones(2, device="xla")
xm.optimization_barrier_([a, b])
assert barriers([b]) == 1
assert a.tolist() == [[0, 3], [1, 4], [2, 5]] and a.stride() == (1, 3) and b.tolist() == [1, 1]
m = torch.nn.Linear(3, 3).to("xla")
apply_backward_optimization_barrier(m)
m(torch.ones(2, 3, device="xla", requires_grad=True)).sum().backward()
assert barriers([p.grad for p in m.parameters()]) == 1
""")


def test_what_is_not_there_says_what_to_use(with_compat):
    with_compat("""
import torch_xla.distributed.spmd as xs
from torch_xla.core import xla_builder as xb
from torch_xla.experimental import custom_kernel
t = torch.ones(2, device="xla")
told(lambda: xs.enable_manual_sharding(t, (0,)), "enable_manual_sharding", "manual.region")
told(lambda: xb.call_jax(print, ()), "call_jax", "no jax")
told(xs.Mesh([0], (1,)).get_jax_mesh, "get_jax_mesh", "jax.sharding.Mesh")
told(lambda: custom_kernel.paged_attention(), "paged_attention", "scaled_dot_product")
told(lambda: torch_xla._XLAC._xla_mark_tensor(t), "_XLAC._xla_mark_tensor", "torch_pjrt.scope")
told(lambda: torch_xla._XLAC.XlaBuilder(), "_XLAC.XlaBuilder", "xla_builder.Op")
try:
    torch_xla._XLAC._no_such_name
except AttributeError as e:
    assert "_no_such_name" in str(e)
else:
    raise AssertionError("a name that nobody has")
""")


def test_deprecated_names_say_so_once(with_compat):
    with_compat("""
import types, warnings
from torch_xla.experimental import deprecation
module = types.ModuleType("torch_xla.old")
deprecation.register_deprecated(module, xm.get_rng_state, "seed")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(3):
        module.seed()
assert [str(w.message) for w in seen] == [
    "torch_xla.old.seed is deprecated, use torch_xla.core.xla_model.get_rng_state"
], seen
""")


def test_frameworks_find_it(with_compat):
    with_compat("""
from transformers.utils import is_torch_xla_available
assert is_torch_xla_available()
from accelerate import Accelerator
import accelerate.utils
assert accelerate.utils.is_torch_xla_available()
a = Accelerator()
assert a.device.type == "xla", a.device
m, o = a.prepare(torch.nn.Linear(2, 1), torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=.1))
assert next(m.parameters()).device.type == "xla"
assert a.gather(torch.ones(2, device="xla")).tolist() == [1, 1]
""")


def test_a_real_torch_xla_beside_is_refused(run_python, tmp_path):
    info = tmp_path / "torch_xla-2.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch_xla\nVersion: 2.9.0\nSummary: XLA bridge for PyTorch\n"
    )
    path = os.pathsep.join([str(COMPAT), str(tmp_path)])
    done = run_python(code="import torch_xla", PYTHONPATH=path)
    assert done.returncode != 0
    assert "two packages named torch_xla: torch_xla 2.9.0" in done.stderr
    assert "pip uninstall torch_xla" in done.stderr


def test_a_checkpoint_manager_saves_by_part_and_before_the_machine_goes(with_compat):
    said = with_compat(
        """
import os, signal, tempfile
from torch_xla import _XLAC
import torch_xla.distributed.spmd as xs
from torch_xla.experimental.distributed_checkpoint import CheckpointManager, SPMDSavePlanner
mesh = xs.Mesh(range(8), (8,), ("d",))
def made(seed):
    torch.manual_seed(seed)
    w, b = torch.randn(16, 4).to("xla"), torch.randn(3).to("xla")
    xs.mark_sharding(w, mesh, ("d", None))
    return {"m": {"w": w, "b": b}, "n": seed}
def same(a, b):
    return all(torch.equal(a["m"][k].cpu(), b["m"][k].cpu()) for k in "wb")
a, b, c = made(0), made(1), made(2)
planner = SPMDSavePlanner()
planner.set_up_planner(a, True)
assert list(planner.sharded_state_dict) == ["m.w"]
assert sorted(planner.unsharded_state_dict) == ["m.b", "n"]
items = [i for i in planner.create_local_plan().items if i.index.fqn == "m.w"]
assert len(items) == 8 and planner.resolve_data(items[3]).shape == (2, 4)  # one device's part
with tempfile.TemporaryDirectory() as folder:
    manager = CheckpointManager(folder, 10, max_to_keep=2)
    assert not manager.save(1, a) and manager.save(10, a) and manager.all_steps() == [10]
    manager.restore(10, b)
    assert same(a, b)
    assert manager.save_async(20, a)
    with torch.no_grad():
        a["m"]["w"].mul_(2)  # what was given is saved as it was
    manager.join()
    assert manager.save(30, a) and manager.all_steps() == [20, 30]
    manager.restore(20, c)
    assert same(b, c)
    os.kill(os.getpid(), signal.SIGTERM)
    assert manager.save(31, a) and manager.reached_preemption(31)
    assert manager.all_steps() == [30, 31]
_XLAC._deactivate_preemption_sync_manager()
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
""",
        CPU_NUM_DEVICES="8",
    )
    assert "definition for SavePlanner" not in said  # it has the names that torch asks for


def test_sizes_that_the_mesh_does_not_divide_are_whole_with_a_warning(with_compat):
    with_compat(
        """
import warnings
import torch_xla.distributed.spmd as xs
from torch_xla import _XLAC
mesh = xs.Mesh(range(4), (4,), ("d",))
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    t = xs.mark_sharding(torch.arange(12.0).reshape(6, 2).to("xla"), mesh, ("d", None))
assert [str(w.message) for w in found] == [
    "mark_sharding: dim 0 (6) over 4 devices cannot be cut evenly, and is whole on each of them\\n"
    "  try: pad it to 8"
], found
assert found[0].filename == "<string>" and found[0].lineno > 0
assert t.sharding_spec == "{replicated}" and t.partition_spec == ("d", None)
assert torch.equal((t.global_tensor + 1).cpu(), torch.arange(12.0).reshape(6, 2) + 1)
assert _XLAC._xla_counter_value("UnevenSharding") == 1
even = xs.mark_sharding(torch.ones(8, 6).to("xla"), mesh, ("d", None))
assert even.sharding_spec == "{devices=[4,1]0,1,2,3}"
""",
        CPU_NUM_DEVICES="4",
    )


def test_pure_functions_mark_their_values(with_compat):
    code = """
import torch_xla.distributed.spmd as xs
from torch_xla.experimental.assume_pure import assume_pure
xr.use_spmd()
mesh = xs.Mesh(list(range(4)), (4,), ("m",))
spec = torch_xla._XLAC._get_xla_sharding_spec
x = torch.arange(8., device="xla")
y = assume_pure(xs.mark_sharding)(x, mesh, ("m",))
assert spec(y).startswith("{devices=[4]") and y.tolist() == x.tolist()
w = torch.ones(8).to("xla").requires_grad_(True)
z = assume_pure(xs.mark_sharding_with_gradients)(w, mesh, ("m",))
(z * 3).sum().backward()
torch_xla.sync()
assert spec(z).startswith("{devices=[4]") and spec(w.grad).startswith("{devices=[4]")
assert w.grad.tolist() == [3] * 8
"""
    with_compat(code, CPU_NUM_DEVICES="4")


def test_batches_are_cut_by_key(with_compat):
    with_compat(
        """
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.spmd as xs
mesh = xs.get_1d_mesh("d")
x, how = torch.ones(4, 2), xs.ShardingSpec(mesh, ("d", None))
def first(batch, sharding):
    return next(iter(pl.MpDeviceLoader([batch], "xla", input_sharding=sharding)))
got = first({"x": x, "y": x}, {"x": how, "y": None, "z": how})
assert torch_xla._XLAC._get_xla_sharding_spec(got["x"]) == "{devices=[4,1]0,1,2,3}"
assert torch_xla._XLAC._get_xla_sharding_spec(got["y"]) == ""
for batch, error in (({"x": x, "y": x}, KeyError), (x, ValueError)):
    try:
        first(batch, {"x": how})
    except error as e:
        assert "input_sharding" in str(e)
    else:
        raise AssertionError(batch)
""",
        CPU_NUM_DEVICES="4",
    )


def test_processes_of_a_launcher_form_a_group_at_the_first_collective(with_compat, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import torch, torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla._internal import pjrt

def work(scale):
    assert not torch.distributed.is_initialized() or xr.world_size() == 2
    t = torch.full((2,), float(xr.global_ordinal() + 1) * scale, device=xm.xla_device())
    return xr.world_size(), xm.all_reduce(xm.REDUCE_SUM, t).tolist(), len(torch_xla.devices())

if __name__ == "__main__":
    print(sorted(pjrt.run_multiprocess(work, 10.0).items()))
""")
    said = with_compat(
        f"""
import os, runpy, socket, subprocess, sys
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = str(s.getsockname()[1])
code = "import sys; sys.path.insert(0, {str(tmp_path)!r}); import program; print(program.work(1.0))"
def started(rank):
    env = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE="2")
    env |= dict(RANK=rank, LOCAL_RANK=rank)
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, env=os.environ | env)
for p in [started("0"), started("1")]:
    out, _ = p.communicate(timeout=240)
    assert p.returncode == 0 and out.splitlines()[-1] == "(2, [3.0, 3.0], 1)", out
env = os.environ | dict(CPU_NUM_DEVICES="2")
command = [sys.executable, {str(program)!r}]
print(subprocess.run(command, text=True, capture_output=True, env=env).stdout)
"""
    )
    assert "[(0, (2, [30.0, 30.0], 1)), (1, (2, [30.0, 30.0], 1))]" in said
