"""Each recorded op knows the user's line; the line is in the module, and never in the key."""

import gc
import re
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_pjrt

HERE = Path(__file__).name


def line_of(text: str) -> int:
    """The number of this file's line that holds `text`."""
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, x in enumerate(lines, 1) if text in x and "line_of" not in x)


def locations(t: torch.Tensor, op: str) -> list[tuple[str, int]]:
    """(scope, line) of every statement that op `op` became."""
    hlo = torch_pjrt.graph.of(t).hlo
    found = re.findall(
        r'loc\("([^"]*?)/?' + re.escape(op) + r'"\("[^"]*?([^/"]+)":(\d+):0\)\)', hlo
    )
    assert found, hlo
    assert {file for _, file, _ in found} == {HERE}
    return [(scope, int(line)) for scope, _, line in found]


@pytest.fixture
def x(device):
    return torch.ones(4, 3).to(device)


def test_an_op_carries_the_line_that_called_it(x):
    y = torch.tanh(x)  # plain call
    assert {n for _, n in locations(y, "aten::tanh")} == {line_of("# plain call")}


def test_frames_of_torch_are_skipped(x):
    layer = nn.Sequential(nn.Sequential(nn.ReLU()))
    y = layer(x)  # through modules
    assert {n for _, n in locations(y, "aten::relu")} == {line_of("# through modules")}


def test_two_calls_on_two_lines_have_two_lines(x):
    y = torch.sin(
        torch.cos(x)  # inner
    )  # outer
    assert {n for _, n in locations(y, "aten::cos")} == {line_of("# inner")}
    assert {n for _, n in locations(y, "aten::sin")} == {line_of("y = torch.sin(")}


def test_a_backward_op_carries_the_line_of_its_forward(x):
    x.requires_grad_()
    y = torch.nn.functional.gelu(x)  # forward of the backward
    y.sum().backward()
    lines = {n for _, n in locations(x.grad, "aten::gelu_backward")}
    assert lines == {line_of("# forward of the backward")}


def test_equal_graphs_from_two_lines_are_one_program(x, compiles):
    torch_pjrt.sync(wait=True)
    with compiles() as seen:
        a = (x * 3).exp()
        torch_pjrt.sync()
        with torch_pjrt.scope("elsewhere"):
            b = (x * 3).exp()
        torch_pjrt.sync()
    assert seen.count == 1
    assert torch.equal(a.cpu(), b.cpu())


def test_scopes_nest_and_end(x):
    with torch_pjrt.scope("outer"), torch_pjrt.scope("inner"):
        a = torch.tanh(x)
    b = torch.tanh(x)
    assert {s for s, _ in locations(a, "aten::tanh")} == {"outer/inner"}
    assert {s for s, _ in locations(b, "aten::tanh")} == {""}


def test_a_scope_ends_when_its_block_raises(x):
    with pytest.raises(KeyError), torch_pjrt.scope("broken"):
        raise KeyError
    assert {s for s, _ in locations(torch.tanh(x), "aten::tanh")} == {""}


def test_a_backward_op_carries_its_forwards_scope(x):
    x.requires_grad_()
    with torch_pjrt.scope("head"):
        y = torch.nn.functional.gelu(x)
    y.sum().backward()
    assert {s for s, _ in locations(x.grad, "aten::gelu_backward")} == {"head"}


def test_module_paths_are_scopes_while_switched_on(x):
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Tanh())).to(x.device)
    torch_pjrt.module_scopes.on()
    try:
        y = net(x)
    finally:
        torch_pjrt.module_scopes.off()
    assert {s for s, _ in locations(y, "aten::tanh")} == {"Sequential/1/0"}
    assert {s for s, _ in locations(torch.tanh(x), "aten::tanh")} == {""}


def test_frames_can_be_switched_off(x):
    torch_pjrt._C.set_frames_on(False)
    try:
        y = torch.tanh(x)
    finally:
        torch_pjrt._C.set_frames_on(True)
    assert HERE not in torch_pjrt.graph.of(y).hlo


def lines_in(dump: str, op: str) -> set[int]:
    """The lines that XLA's text gives an op: in its metadata, or by a stack frame (2026)."""
    here = rf'op_name="[^"]*{op}"[^\n]*'
    places = dict(re.findall(r"^(\d+) \{file_location_id=(\d+)", dump, re.M))
    lines = dict(re.findall(r"^(\d+) \{file_name_id=\d+ .*?\bline=(\d+)", dump, re.M))
    frames = re.findall(here + r"stack_frame_id=(\d+)", dump)
    named = re.findall(here + r"source_line=(\d+)", dump)
    return {int(n) for n in [*named, *(lines[places[f]] for f in frames)]}


def test_the_plugins_own_dump_names_the_users_line(run_python, tmp_path):
    code = """
import torch, torch_pjrt
x = torch.ones(64, 64).to("xla")
y = torch.tanh(x) @ x
torch_pjrt.sync(wait=True)
"""
    script = tmp_path / "users_script.py"
    script.write_text(code)
    done = run_python(
        str(script), XLA_FLAGS=f"--xla_dump_to={tmp_path}/dump --xla_dump_hlo_as_text"
    )
    assert done.returncode == 0, done.stderr
    dumps = [p.read_text() for p in (tmp_path / "dump").glob("*after_optimizations.txt")]
    assert any("users_script.py" in text for text in dumps)
    assert set().union(*(lines_in(text, "aten::tanh") for text in dumps)) == {4}, dumps


def test_code_made_by_exec_keeps_its_file_name(x):
    space = {"torch": torch, "x": x}
    for i in range(3):
        exec(compile(f"y{i} = torch.tanh(x)", f"cell{i}.py", "exec"), space)
    hlo = torch_pjrt.graph.of([space["y0"], space["y1"], space["y2"]]).hlo
    assert all(f'"cell{i}.py":1:0' in hlo for i in range(3))


def test_code_made_at_run_time_is_not_kept_alive_and_has_its_own_lines(x):
    """Code objects of exec, whose addresses come again: many, one after another."""
    alive, wrong = [], []
    for i in range(3000):
        code = compile("\n" * (i % 50) + "y = x + 1", f"made{i}.py", "exec")
        scope = {"x": x}
        exec(code, scope)
        if i % 10 == 0:
            text = torch_pjrt.graph.of(scope["y"]).text
            if re.findall(r"# (\S+)", text)[-1] != f"made{i}.py:{i % 50 + 1}":
                wrong.append((i, text))
        alive.append(weakref.ref(code))
        del code, scope
    gc.collect()
    assert wrong == []
    assert sum(ref() is not None for ref in alive) <= 1
