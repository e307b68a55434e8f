"""Metrics, dumps, graphs to look at, the profiler, notebooks: what each promises."""

import json
import re
from pathlib import Path

import pytest
import torch

import torch_pjrt

RUN = """
import torch, torch_pjrt
x = torch.ones(3).to("xla")
y = (x * 2).sin()
torch_pjrt.sync(wait=True)
print(y.sum().item())
"""


# ---- metrics --------------------------------------------------------------------------------


def test_the_report_shows_the_two_halves_of_the_seam_with_percentiles(device):
    (torch.ones(3).to(device) + 1).cpu()
    text = torch_pjrt.metrics.report()
    above, at = text.index("above the seam"), text.index("at the seam")
    assert above < text.index("Lower") < at < text.index("  execute")
    assert at < text.index("  transfer to the device") < text.index("bytes across the seam")
    head = next(line for line in text.splitlines() if "at the seam" in line)
    assert head.split()[-4:] == ["1%", "50%", "95%", "99%"]
    assert re.search(r"^  GraphCut +\d+$", text, re.M)


def test_percentiles_are_within_an_eighth(device):
    torch_pjrt.metrics.clear()
    for _ in range(20):
        torch.ones(1000).to(device).add(1).cpu()
    count, total, shares = torch_pjrt.metrics.data("TransferToDevice")
    assert count >= 20
    values = [shares[s] for s in sorted(shares)]
    assert values == sorted(values)
    assert 0 < shares[0.01] <= total / count * 1.13


def test_bytes_moved_are_accumulated(device):
    torch_pjrt.metrics.clear()
    torch.arange(1000, dtype=torch.float64).to(device).add(1).cpu()
    _, total, shares = torch_pjrt._C.accumulators()["TransferToDevice"]
    assert total >= 8000
    assert 8000 * 0.87 <= shares[0.99] <= 8000 * 1.13


def test_the_short_report_counts_compiles_and_cuts(device):
    (torch.ones(3).to(device) + 1).cpu()
    text = torch_pjrt.metrics.short_report()
    assert re.match(r"compiled \d+ programs in .*\nlaunched \d+ programs", text)
    assert "GraphCut: " in text


# ---- graphs and dumps -----------------------------------------------------------------------


def test_a_graph_is_saved_in_the_form_its_name_asks_for(device, tmp_path):
    g = torch_pjrt.graph.of(torch.ones(3).to(device).tanh())
    assert g.save(tmp_path / "g.txt").read_text() == g.text
    assert g.save(tmp_path / "g.dot").read_text().startswith("digraph")
    assert "stablehlo.tanh" in g.save(tmp_path / "g.mlir").read_text()
    assert g.save(tmp_path / "g.html").read_text().startswith("<!doctype html>")
    with pytest.raises(ValueError, match=r"expected a name in \.txt"):
        g.save(tmp_path / "g.pdf")


def test_looking_at_a_graph_runs_and_compiles_nothing(device):
    y = torch.ones(3, 97).to(device).tanh() * 3
    compiled, cuts = torch_pjrt.metrics.compiles(), torch_pjrt.metrics.counters().get("GraphCut")
    assert torch_pjrt.graph.of(y).html
    assert torch_pjrt.state(y) == "ir"
    assert torch_pjrt.metrics.compiles() == compiled
    assert torch_pjrt.metrics.counters().get("GraphCut") == cuts


def test_a_graph_is_a_list_of_its_nodes(device):
    x = torch.ones(3, 4).to(device)
    nodes = list(torch_pjrt.graph.of((x * 2).sum(0)))
    by_name = {n.name: n for n in nodes}
    assert by_name["aten::mul.Tensor"].type == "f32[3,4]"
    assert len(by_name["aten::mul.Tensor"].args) == 2
    assert "dim=[0]" in by_name["aten::sum.dim_IntList"].attrs
    assert re.fullmatch(r"test_instruments\.py:\d+", by_name["aten::mul.Tensor"].where)


def test_the_optimized_program_names_the_users_line(device):
    x = torch.ones(16, 16).to(device)
    y = torch.tanh(x @ x)
    torch_pjrt.sync(wait=True)
    program = torch_pjrt.graph.last().program()
    assert program.optimized.startswith("HloModule")
    assert "ROOT" in program.optimized
    assert "test_instruments.py:" in program.optimized
    assert program.memory["outputs"] >= 16 * 16 * 4
    assert program.memory["arguments"] >= 16 * 16 * 4
    assert y.shape == (16, 16)


def test_compiled_graphs_are_dumped_to_files_that_say_what_they_hold(device, tmp_path):
    with torch_pjrt.graph.dump_to(tmp_path / "dump") as folder:
        y = torch.ones(3, 71).to(device).tanh() * 3
        torch_pjrt.sync(wait=True)
    z = torch.ones(3, 73).to(device).tanh() * 3
    torch_pjrt.sync(wait=True)
    files = sorted(p.name for p in folder.iterdir())
    assert len(files) == 3
    pattern = r"\d{4}-test_instruments\.py_\d+-\d+ops-[0-9a-f]{8}\.(dot|mlir|txt)"
    assert all(re.fullmatch(pattern, name) for name in files), files
    assert "tensor<3x71xf32>" in (folder / files[1]).read_text()
    assert y.shape != z.shape


@pytest.mark.parametrize(
    ("form", "holds"), [("text", "aten::sin"), ("dot", "digraph"), ("hlo", "stablehlo.sine")]
)
def test_each_syncs_graph_goes_to_the_file_of_the_users_variable(form, holds, run_python, tmp_path):
    file = tmp_path / "graphs"
    done = run_python(code=RUN, XLA_SAVE_TENSORS_FILE=str(file), XLA_SAVE_TENSORS_FMT=form)
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert holds in text
    assert len(re.findall(r"graph \d+, \d+ ops, synced at <string>:\d", text)) == 2


def test_a_dump_that_cannot_be_written_is_said_once_and_stops_nothing(run_python):
    done = run_python(code=RUN, TORCH_PJRT_DUMP_TO="/proc/nowhere")
    assert done.returncode == 0
    assert done.stderr.count("cannot write") == 1


@pytest.mark.parametrize(
    ("level", "said", "unsaid"),
    [
        ("1", "compiled ", "sync at"),
        ("2", "sync at <string>:", "%0 ="),
        ("3", "%0 = ", "module @"),
        ("4", "module @", "\0"),
    ],
)
def test_the_dial_says_more_the_higher_it_is(level, said, unsaid, run_python):
    done = run_python(code=RUN, TORCH_PJRT_DEBUG=level)
    assert said in done.stderr
    assert unsaid not in done.stderr
    assert said not in run_python(code=RUN, TORCH_PJRT_DEBUG="0").stderr


def test_the_dial_of_torch_xla_works_too(run_python):
    assert "torch_pjrt: compiled " in run_python(code=RUN, PT_XLA_DEBUG_LEVEL="1").stderr


@pytest.mark.parametrize("name", ["XLA_IR_DEBUG", "XLA_HLO_DEBUG"])
def test_the_debug_variables_of_torch_xla_name_modules(name, run_python):
    code = """
import torch, torch_pjrt
net = torch.nn.Sequential(torch.nn.Tanh()).to("xla")
print(torch_pjrt.graph.of(net(torch.ones(3).to("xla"))).hlo)
"""
    done = run_python(code=code, **{name: "1", "TORCH_PJRT_FRAMES": "0"})
    assert 'loc("Sequential/0/aten::tanh"("<string>":4:0))' in done.stdout, done.stderr
    assert "Sequential" not in run_python(code=code).stdout


# ---- the profiler ---------------------------------------------------------------------------


def test_torch_profiler_shows_our_spans_inside_the_users(device, tmp_path):
    cpu = [torch.profiler.ProfilerActivity.CPU]
    mine = torch.profiler.record_function("my step")
    with torch.profiler.profile(activities=cpu) as profile, mine:
        y = (torch.ones(3, 79).to(device) * 2).sin()
        torch_pjrt.sync(wait=True)
    names = {e.key for e in profile.key_averages()}
    wanted = {f"torch_pjrt::{s}" for s in ("sync", "lower", "compile", "execute", "wait")}
    assert wanted | {"my step", "aten::sin"} <= names
    profile.export_chrome_trace(str(tmp_path / "t.json"))
    events = {
        e["name"]: e
        for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        if e.get("ph") == "X"
    }
    mine, ours = events["my step"], events["torch_pjrt::compile"]
    assert mine["ts"] <= ours["ts"]
    assert ours["ts"] + ours["dur"] <= mine["ts"] + mine["dur"]
    assert y.shape == (3, 79)


# ---- notebooks ------------------------------------------------------------------------------


def test_importing_twice_changes_nothing(run_python):
    code = """
import importlib, logging, torch, torch_pjrt
x = torch.ones(2).to("xla") + 1
importlib.reload(torch_pjrt)
import torch_pjrt
print(x.tolist(), (x + 1).tolist(), len(logging.getLogger("torch_pjrt").handlers))
"""
    done = run_python(code=code)
    assert done.stdout == "[2.0, 2.0] [3.0, 3.0] 1\n", done.stderr


def test_the_device_may_be_chosen_after_import(run_python):
    code = """
import os, torch, torch_pjrt
os.environ["PJRT_DEVICE"] = "NOSUCH"
try:
    torch.ones(2).to("xla").sum().item()
except Exception as error:
    print(str(error).splitlines()[0])
"""
    done = run_python(code=code)
    assert "NOSUCH" in done.stdout, done.stdout + done.stderr


def test_a_failed_first_cell_can_be_run_again(run_python):
    code = """
import torch, torch_pjrt
x = torch.ones(2).to("xla")
try:
    x @ x.view(1, 2)
except RuntimeError as error:
    print("failed")
print((x + 1).tolist())
"""
    done = run_python(code=code)
    assert done.stdout == "failed\n[2.0, 2.0]\n", done.stderr


def test_the_explanation_and_a_compile_show_in_notebooks(device):
    (torch.ones(3, 83).to(device) + 1).cpu()
    assert torch_pjrt.explain(last=True)._repr_html_().startswith("<pre>compile ")


def test_docs_name_only_flags_that_exist():
    text = (Path(__file__).resolve().parents[2] / "docs/debugging.md").read_text()
    known = {f.name for f in torch_pjrt.flags.table()}
    for name in re.findall(r"\b(?:TORCH_PJRT|XLA|PT_XLA)_[A-Z_]+", text):
        assert name in known, name
