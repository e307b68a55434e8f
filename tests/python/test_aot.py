"""Programs for hardware that is not there: what they need, files of them, and what is refused."""

import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fake_plugin import ROOT, fake_env
from torch import nn

import torch_pjrt
from torch_pjrt import __main__, _fit, _topologies, aot, plugins

X = torch.ones(4, 8)


@pytest.fixture
def fake_there(fake, monkeypatch):
    """The fake plugin may be asked for, though this process uses the CPU's."""
    monkeypatch.setenv("TORCH_PJRT_PLUGIN", f"FAKE:{fake}")


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def for_fake(what=None, topology="fake:1"):
    return aot.compile(what or model(), (X,), plugin="FAKE", topology=topology)


# ---- programs


def test_memory_is_the_plugins_by_part_and_adds_up(fake_there):
    program = for_fake()
    m = program.memory
    weights = 8 * 16 + 16 + 16 * 2 + 2
    assert (m.arguments, m.outputs, m.temporaries) == (4 * (X.numel() + weights), 32, 32)
    assert m.aliased == 0
    assert m.code == len(program.hlo)
    assert m.total == m.arguments + m.outputs + m.temporaries + m.code
    assert (program.plugin, program.kind, program.devices) == ("FAKE", "fake", 1)


def test_in_place_results_need_no_memory_of_their_own():
    m = aot.Memory(arguments=100, outputs=60, aliased=50, temporaries=7, code=3, limit=120)
    assert m.total == 120
    assert m.fits is True
    assert replace(m, limit=119).fits is False
    assert replace(m, limit=None).fits is None
    assert str(replace(m, limit=119)).startswith("120 B a device of 119 B: does not fit (arg")


def test_weights_are_arguments_in_order_and_are_named(fake_there):
    names = [a.name for a in for_fake().arguments]
    assert names == ["input", "0.weight", "0.bias", "2.weight", "2.bias"]


def test_what_is_recorded_already_is_compiled_as_it_is(fake_there):
    x = X.to("xla")
    exported = torch_pjrt.export.stablehlo(model(), (X,), portable=False)
    pending = torch_pjrt.graph.of(x + 1)
    assert for_fake(exported).hlo == for_fake(exported.text).hlo == exported.text
    assert for_fake(exported).arguments == exported.signature.arguments
    assert for_fake(pending).hlo == pending.hlo


def test_nothing_is_run_and_no_client_program_is_compiled(fake_there, compiles):
    with compiles() as seen:
        for_fake()
    assert (seen.count, seen.cuts) == (0, 0)


SHARDED = """module @m {
  sdy.mesh @mesh = <["data"=2, "model"=3]>
  func.func public @main(%a: tensor<6xf32>) -> (tensor<6xf32>) {
    "func.return"(%a) : (tensor<6xf32>) -> ()
  }
}"""


def test_a_sharded_module_runs_on_its_mesh(fake_there):
    assert for_fake(SHARDED, "fake:6").devices == 6
    with pytest.raises(ValueError, match="runs on 6 devices, topology 'fake:4' has 4"):
        for_fake(SHARDED, "fake:4")


def test_collectives_are_counted_by_kind_and_once_a_pair():
    text = """HloModule m
%main {
  %all-reduce.1 = f32[8] all-reduce(%p)
  %ar = (f32[8], f32[8]) all-reduce-start(%p)
  %ard = f32[8] all-reduce-done(%ar)
  %g = f32[16] all-gather(%p)  # jit(all-reduce(x)) train.py:3
  %f = f32[16] fusion(%all-reduce.1)
  %c = f32[16] collective-permute-start(%f)
}"""
    assert aot.count_collectives(text) == {
        "all-gather": 1,
        "all-reduce": 2,
        "collective-permute": 1,
    }


# ---- files

MAKE = """
from torch_pjrt import aot
def f(x, y):
    return x @ y, x.sum()
made = aot.compile(f, (torch.ones(4, 8), torch.ones(8, 2)), plugin="FAKE", topology="fake:1")
made.save(os.environ["TO"])
"""


def test_a_program_file_runs_on_its_hardware_without_a_compile(run_fake, tmp_path):
    code = """
before = torch_pjrt.metrics.compiles()
loaded = aot.load(os.environ["TO"])
product, total = loaded(torch.ones(4, 8), torch.ones(8, 2))
print([a.name for a in loaded.arguments], product.tolist() == torch.zeros(4, 2).tolist())
print(total.shape, loaded.meta["topology"], torch_pjrt.metrics.compiles() - before)
print(attempt(lambda: loaded(torch.ones(4, 8))))
"""
    said = run_fake(MAKE + code, TO=str(tmp_path / "f.program")).splitlines()
    assert said[0] == "['x', 'y'] True"
    assert said[1] == "torch.Size([]) fake:1 0"
    assert "the program takes 2 arguments, got 1" in "\n".join(said[2:])


def test_a_file_of_another_build_or_other_devices_is_refused(run_fake, tmp_path):
    code = """
import json, zipfile
def changed(**meta):
    with zipfile.ZipFile(os.environ["TO"]) as f:
        parts = {n: f.read(n) for n in f.namelist()}
    parts["program.json"] = json.dumps(json.loads(parts["program.json"]) | meta)
    with zipfile.ZipFile("other", "w") as f:
        for n, data in parts.items():
            f.writestr(n, data)
    print(attempt(lambda: aot.load("other")).replace("\\n", " "))
os.chdir(os.path.dirname(os.environ["TO"]))
changed(made_by={"sha256": "0"})
changed(kind="TPU v9")
changed(devices=4)
changed(format=99)
"""
    said = run_fake(MAKE + code, TO=str(tmp_path / "f.program")).splitlines()
    assert "another build of the plugin made it" in said[0]
    assert "its devices are TPU v9, those here fake" in said[1]
    assert "it runs on 4 devices" in said[2]
    assert "is of format 99, this version reads 1" in said[3]


def test_a_file_for_another_plugin_names_what_to_set(fake_there, tmp_path):
    path = for_fake().save(tmp_path / "m.program")
    with pytest.raises(RuntimeError, match=r"made for fake:1 \(FAKE\): this process uses CPU") as e:
        aot.load(path)
    assert "PJRT_DEVICE=FAKE" in str(e.value)


def test_what_is_no_program_file_is_refused(tmp_path):
    path = tmp_path / "x"
    path.write_text("hello")
    with pytest.raises(ValueError, match="is no program file"):
        aot.load(path)
    with zipfile.ZipFile(path, "w") as f:
        f.writestr("program.json", json.dumps({}))
    with pytest.raises(ValueError, match="is no program file"):
        aot.load(path)
    with pytest.raises(FileNotFoundError):
        aot.load(tmp_path / "none")


# ---- bad words


@pytest.mark.parametrize(
    ("topology", "plugin", "words"),
    [
        ("v9:2x2", None, "no hardware is called 'v9'; known are, in any size, v4:2x2x1, v5e:2x2"),
        ("v5e", None, "'' is no size, which looks like v5e:2x2"),
        ("v5e:big", None, "'big' is no size"),
        ("h100:0", None, "'0' is no size, which looks like h100:8"),
        ("h100:2x2", "CUDA", "'2x2' is no size"),
        ("v5e:2x2", "CUDA", "it is TPU's, and plugin CUDA was asked for"),
    ],
)
def test_an_unknown_topology_is_told_with_the_known_ones(topology, plugin, words):
    with pytest.raises(ValueError, match=re.escape(f"topology '{topology}': {words}")):
        aot.compile("", topology=topology, plugin=plugin)


def test_the_plugins_own_words_come_where_it_knows_no_such_topology(fake_there):
    with pytest.raises(ValueError, match="topology 'moon': plugin FAKE does not know it") as e:
        for_fake(topology="moon")
    assert "INVALID_ARGUMENT [3]: Invalid fake topology: moon" in str(e.value)


@pytest.mark.parametrize(
    ("topology", "plugin", "advice"),
    [
        ("v5e:2x2", None, "plugin TPU is not installed.*pip install libtpu"),
        ("h100:8", None, "plugin CUDA is not installed.*pip install --no-deps jax-cuda13-pjrt"),
        ("x", "CHIP", "plugin CHIP is not installed.*set TORCH_PJRT_PLUGIN=CHIP:/path"),
    ],
)
def test_a_missing_plugin_names_what_to_install(monkeypatch, topology, plugin, advice):
    monkeypatch.delenv("TORCH_PJRT_PLUGIN", raising=False)
    monkeypatch.setattr(plugins, "find", lambda problems=None: [])
    with pytest.raises(RuntimeError, match=f"(?s){advice}"):
        aot.compile("", topology=topology, plugin=plugin)


def test_a_package_that_is_broken_says_why(monkeypatch):
    monkeypatch.delenv("TORCH_PJRT_PLUGIN", raising=False)
    broken = plugins.Plugin("TPU", "", "x", problem="package libtpu is installed, but fails: no")
    monkeypatch.setattr(plugins, "find", lambda problems=None: [broken])
    with pytest.raises(RuntimeError, match="plugin TPU cannot be used: package libtpu is inst"):
        aot.compile("", topology="v5e:2x2")


def test_cuda_without_its_assembler_names_what_to_install(monkeypatch):
    monkeypatch.setattr(_topologies, "_library", lambda plugin: "/x/plugin.so")
    monkeypatch.setattr(_topologies.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install --no-deps nvidia-cuda-nvcc nvidia-nvvm"):
        aot.compile("", topology="h100:8")


def test_gpus_come_in_whole_hosts(monkeypatch):
    monkeypatch.setattr(_topologies, "_library", lambda plugin: "/x/plugin.so")
    monkeypatch.setattr(_topologies, "_cuda_tools", lambda: "/x")
    assert _topologies.resolve(None, "h200:4").options["topology"] == "1x1x4"
    assert _topologies.resolve(None, "h200:16").options["topology"] == "1x2x8"
    with pytest.raises(ValueError, match="12 GPUs are no whole number of hosts with 8"):
        _topologies.resolve(None, "h200:12")


def test_what_a_plugin_cannot_compile_comes_in_its_words(run_fake):
    code = """
from torch_pjrt import aot
def tell(script):
    os.environ["TORCH_PJRT_FAKE_SCRIPT"] = script
    print(attempt(lambda: aot.compile(str, (), plugin="FAKE", topology="fake:1")))
    f = lambda x: x + 1
    print(attempt(lambda: aot.compile(f, (torch.ones(3),), plugin="FAKE", topology="fake:1")))
tell("ahead:1=RESOURCE_EXHAUSTED Ran out of memory on HBM")
tell("ahead:1=UNIMPLEMENTED dot of int64")
"""
    said = run_fake(code)
    assert "OutOfMemoryError: PJRT_Compile failed with RESOURCE_EXHAUSTED [8]: Ran out of" in said
    assert "PJRT_Compile failed with UNIMPLEMENTED [12]: dot of int64" in said


# ---- fit

SCRIPT = """
import sys
import torch
import torch_pjrt

torch.manual_seed(0)
net = torch.nn.Linear(8, 2).to("xla")
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 8).to("xla")
print("words", sys.argv[1:], __name__)
for _ in range(3):
    opt.zero_grad()
    net(x).square().mean().backward()
    opt.step()
    torch_pjrt.sync()
eigenvalues = torch.linalg.eigvalsh(net.weight @ net.weight.T)
torch_pjrt.sync()
print("done", tuple((eigenvalues + 1).shape))
"""


def fit(run_python, fake, *words, **env):
    env = {"TORCH_PJRT_PLUGIN": f"FAKE:{fake}"} | env
    return run_python("-m", "torch_pjrt", "fit", *map(str, words), **env)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


FOR_FAKE = ("--topology", "fake:2", "--plugin", "FAKE")


def test_fit_tells_bytes_a_device_by_program_of_an_unchanged_script(run_python, fake, script):
    done = fit(run_python, fake, script, *FOR_FAKE, "--", "--steps", 5)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "words ['--steps', '5'] __main__" in done.stdout
    assert "done (2,)" in done.stdout
    table = done.stdout[done.stdout.index("fake:2: 2 devices of kind fake") :].splitlines()
    assert table[2].split()[:2] == ["ops", "runs"]
    assert table[-1] == "on the host, which cuts the graph: aten::_linalg_eigh (1 times)"
    rows = [line.split() for line in table[3:-1]]
    step = next(r for r in rows if r[1] == "3")
    sync = SCRIPT.splitlines().index("    torch_pjrt.sync()") + 1
    assert f"train.py:{sync}" in step
    assert all(int(r[0]) > 0 for r in rows)


def test_fit_records_as_an_accelerator_would(run_python, fake, script, tmp_path):
    texts = []
    for folder, env, words in (
        ("there", fake_env(fake) | {"TORCH_PJRT_TIERS": "off"}, [script]),
        ("here", {}, ["-m", "torch_pjrt._fit", tmp_path / "here", "fake", script]),
    ):
        env |= {"TORCH_PJRT_DUMP_TO": str(tmp_path / folder), "TORCH_PJRT_TIERS": "off"}
        done = run_python(*map(str, words), own_start=True, **env)
        assert done.returncode == 0, done.stderr
        files = sorted((tmp_path / folder).glob("*.mlir"))
        texts.append([p.read_text().partition("\n")[2] for p in files])  # their names are keys
    assert texts[0] == texts[1]
    assert len(texts[0]) >= 2
    assert not any("custom_call" in t for t in texts[0])  # eigvalsh is the host's: a cut


def run_here(monkeypatch, *words):
    """`python -m torch_pjrt fit` in this process; its exit status."""
    monkeypatch.setattr(sys, "argv", ["torch_pjrt", "fit", *map(str, words)])
    return __main__.main()


def test_fit_says_what_does_not_fit_and_what_is_refused(monkeypatch, fake_there, script, capsys):
    small = "ahead:1=RESOURCE_EXHAUSTED HBM is full; ahead:2=UNIMPLEMENTED no such thing"
    monkeypatch.setenv("TORCH_PJRT_FAKE_SCRIPT", small)

    def made(folder, *_):
        for i in range(3):
            text = SHARDED.replace("@m ", f"@m{i} ")
            (Path(folder) / f"000{i}-train.py_{i}-2ops-abcdef0{i}.mlir").write_text(text)
        return 0

    monkeypatch.setattr(_fit, "_run_script", made)
    words = [*FOR_FAKE, script]
    assert run_here(monkeypatch, *(w.replace("fake:2", "fake:6") for w in map(str, words))) == 1
    first, second, third = capsys.readouterr().out.splitlines()[3:]
    assert first.split()[:2] == ["2", "0"]
    assert "train.py:0: out of memory: PJRT_Compile failed with RESOURCE_EXHAUSTED [8]" in first
    assert "train.py:1: refused: PJRT_Compile failed with UNIMPLEMENTED [12]: no such" in second
    assert third.endswith("train.py:2")


def test_fit_compares_with_the_devices_memory(fake_there, capsys):
    topology = aot.Topology("fake:1", "FAKE")
    line = _fit._Recorded("train.py:3", 7, 2, for_fake().hlo)
    topology.target = replace(topology.target, memory=1 << 20)
    assert line.print(topology)
    topology.target = replace(topology.target, memory=1000)
    assert not line.print(topology)
    fits, no = capsys.readouterr().out.splitlines()
    assert fits.endswith("train.py:3  fits")
    assert no.endswith("train.py:3  DOES NOT FIT")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["SCRIPT"], "fit: --topology is missing: v5e:2x2, h100:8, ... (docs/aot.md)\n"),
        (["none.py", *FOR_FAKE], "fit: no script 'none.py'\n"),
        (["SCRIPT", "--topology", "v9:1"], "fit: topology 'v9:1': no hardware is called 'v9'"),
    ],
)
def test_fit_with_wrong_words_says_which(monkeypatch, fake_there, script, capsys, words, message):
    words = (script if w == "SCRIPT" else w for w in words)
    monkeypatch.setattr(_fit, "_run_script", None)  # is not called
    assert run_here(monkeypatch, *words) == 2
    assert capsys.readouterr().err.startswith(message)


def test_fit_of_a_script_that_fails_says_so(run_python, fake, tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import torch, torch_pjrt\nprint((torch.ones(3).to('xla') + 1).sum())\n1 / 0\n")
    done = fit(run_python, fake, path, *FOR_FAKE)
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr
    assert "fit: the script ended with status 1" in done.stderr
    assert "bad.py:2" in done.stdout  # what was recorded until then


# ---- real plugins, without their hardware

STEP = """
import torch, torch_pjrt
from torch_pjrt import aot
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
net = net.to("xla")
x, y = torch.ones(32, 64).to("xla"), torch.ones(32, 10).to("xla")
loss = (net(x) - y).square().mean()
loss.backward()
weights = list(net.parameters())
step = torch_pjrt.graph.of([loss, *(w - 0.1 * w.grad for w in weights)])  # not run
program = aot.compile(step, topology={topology!r})
m = program.memory
assert m.fits and m.limit == {limit}, m
given = sum(a.numel() * a.element_size() for a in (x, y, *weights))
assert given <= m.arguments < 2 * given, (given, m)
assert program.executable
print(program.kind, "|", m, "|", program.cost, program.collectives)
"""


EIGHT = """
import torch, torch_pjrt
from torch_pjrt import aot, spmd
F = torch.nn.functional
mesh = spmd.Mesh(range(8), (2, 4), ("data", "model"))
w1, w2, x = torch.randn(256, 64), torch.randn(16, 256), torch.randn(32, 64)
w1 = spmd.mark_sharding(w1.to("xla"), mesh, ("model", None))
w2 = spmd.mark_sharding(w2.to("xla"), mesh, (None, "model"))
x = spmd.mark_sharding(x.to("xla"), mesh, ("data", None))
loss = F.linear(F.relu(F.linear(x, w1)), w2).square().mean()
program = aot.compile(torch_pjrt.graph.of([loss]), topology={topology!r})
assert program.devices == 8
# Partial products over "model", and the mean over "data".
assert program.collectives == {{"all-reduce": 2}}, program.collectives
whole = sum(t.numel() * t.element_size() for t in (w1, w2, x))
print(program.kind, program.collectives, program.memory)
assert program.memory.arguments < whole / 2, (program.memory, whole)
"""


def skip_without(topology: str) -> int:
    """Bytes a device, where the plugin that compiles for it is installed; else skips."""
    try:
        return _topologies.resolve(None, topology).memory
    except RuntimeError as error:
        return pytest.skip(f"its wheel is not installed here: {' '.join(str(error).split())}")


@pytest.mark.nightly
@pytest.mark.parametrize("topology", ["h100:8"])
def test_real_plugins_compile_for_eight_devices(run_python, topology):
    skip_without(topology)
    env = {"TORCH_PJRT_CPU_DEVICES": "8"}
    done = run_python(code=EIGHT.format(topology=topology), own_start=True, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


# Ops whose modules a plugin does not compile in time; docs/aot.md says why.
REFUSED = {"v5e:2x2": {"aten::igamma", "aten::igammac"}, "h200:1": set()}


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("topology", "platform"), [("v5e:2x2", "tpu"), ("h200:1", "cuda")])
def test_real_plugins_compile_a_cover_of_all_ops(fake, tmp_path, topology, platform):
    skip_without(topology)
    tool = [sys.executable, ROOT / "tests" / "ops" / "cover.py"]
    env = os.environ | fake_env(fake) | {"TORCH_PJRT_FAKE_PLUGIN": fake}
    del env["TORCH_PJRT_PLUGIN"]
    folder = tmp_path / "modules"
    made = subprocess.run([*tool, "record", folder, platform], env=env, capture_output=True,
                          text=True, timeout=3600, check=False)  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:]
    assert json.loads(made.stdout.splitlines()[-1])["cover"] > 250
    there = subprocess.run([*tool, "compile", folder, topology], capture_output=True, text=True,
                           timeout=3600, check=False)  # fmt: skip
    assert there.returncode == 0, there.stderr[-3000:]
    answers = [json.loads(line) for line in there.stdout.splitlines()]
    wrong = [a for a in answers if "words" in a]
    unexpected = [a for a in wrong if not REFUSED[topology] & set(a["ops"])]
    print(len(answers), "modules", sum(a.get("seconds", 0) for a in answers), "s")
    assert not unexpected


@pytest.mark.nightly
def test_fit_of_a_training_script_ends_with_the_real_plugin(run_python, tmp_path):
    limit = skip_without("v5e:2x2")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("sys.argv[1:]", "[]"))
    done = run_python("-m", "torch_pjrt", "fit", str(path), "--topology", "v5e:2x2", own_start=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"TPU v5 lite, {aot.size(limit)} each" in done.stdout
    assert done.stdout.count("  fits") >= 2


@pytest.mark.nightly
@pytest.mark.parametrize("topology", ["v5e:2x2", "h200:1"])
def test_real_plugins_compile_a_training_step_without_hardware(run_python, topology):
    limit = skip_without(topology)
    done = run_python(code=STEP.format(topology=topology, limit=limit), own_start=True)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
