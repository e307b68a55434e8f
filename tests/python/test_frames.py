"""Each recorded op knows the user's line; the line is in the module, and never in the key."""

import asyncio
import functools
import gc
import re
import sys
import threading
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


# ---- the interpreter's own frames beside Python's public API --------------------------------


def told(y: torch.Tensor) -> str:
    """file:line of the newest op of a graph."""
    return Path(re.findall(r"# (\S+)", torch_pjrt.graph.of(y).text)[-1]).name


@pytest.fixture(params=[True, False], ids=["direct", "api"])
def frames_read(request):
    """Frames read as they lie in memory, or by Python's API."""
    torch_pjrt._C.set_frames_direct(request.param)
    assert torch_pjrt._C.frames_direct() == request.param
    yield
    torch_pjrt._C.set_frames_direct(True)


def test_the_frames_of_this_python_are_read_directly():
    known = (3, 11) <= sys.version_info < (3, 14)
    assert torch_pjrt._C.frames_direct() == known


class Called:
    """An op in each kind of function that Python calls by itself."""

    def __init__(self, x):
        self.x = x

    @property
    def prop(self):
        return self.x + 1  # way: property

    def __getattr__(self, name):
        return self.x + 1  # way: getattr

    def __add__(self, other):
        return self.x + other  # way: operator

    def __call__(self, a, *, b=1):
        return self.x + a + b  # way: call

    def __enter__(self):
        return self.x + 1  # way: enter

    def __exit__(self, *_):
        pass


def by_generator(x):
    def make():
        yield None
        yield x + 1  # way: generator

    made = make()
    next(made)
    return next(made)


def by_inner_generator(x):
    def outer():
        yield from (x + i for i in range(1))  # way: inner generator

    return next(outer())


def by_comprehension(x):
    return [
        x + 1  # way: comprehension
        for _ in range(3)
    ][-1]


def by_closure_in_comprehension(x):
    return [
        (lambda: x + i)()  # way: closure in comprehension
        for i in range(3)
    ][-1]


def by_c_code(x):
    return list(map(lambda i: x + i, range(3)))[-1]  # noqa: C417 - way: C code


def by_sort(x):
    made = []
    sorted(
        [2, 1],
        key=lambda i: made.append(x + 1) or i,  # way: sort
    )
    return made[-1]


def by_partial(x):
    def add(a, b):
        return a + b  # way: partial

    return functools.partial(add, x)(1)


def by_coroutine(x):
    async def inner():
        await asyncio.sleep(0)
        return x + 1  # way: coroutine

    async def outer():
        return await inner()

    return asyncio.run(outer())


def by_async_generator(x):
    async def make():
        yield x + 1  # way: async generator

    async def take():
        return await anext(make())

    return asyncio.run(take())


def by_class_body(x):
    class Body:
        y = x + 1  # way: class body

    return Body.y


def by_except(x):
    try:
        raise KeyError
    except KeyError:
        return x + 1  # way: except


def by_finally(x):
    made = []
    for _ in range(2):
        try:
            continue
        finally:
            made.append(x + 1)  # way: finally
    return made[-1]


def by_recursion(x, depth=300):
    return by_recursion(x, depth - 1) if depth else x + 1  # way: recursion


def by_many_cells(x):
    a, b, c = 1, 2, 3

    def inner():
        return x + (a + b + c)  # way: many cells

    return inner()


def by_match(x):
    match (1, {"k": 2}):
        case (1, {"k": k}):
            return x + k  # way: match


def by_many_arguments(x):
    def add(a, *args, k, **more):
        return a + len(args) + k + len(more)  # way: many arguments

    return add(x, *range(300), k=1, **{f"n{i}": i for i in range(300)})


def by_long_function(x):
    """Its last line's instruction is far from the first: extended arguments and jumps."""
    lines = ["def long(x):", " n = 0", *[f" if x is n: n = {i}" for i in range(2000)]]
    space = {}
    exec(compile("\n".join([*lines, " return x + 1"]), "long.py", "exec"), space)
    return space["long"](x)


def by_thread(x):
    made = []

    def run():
        made.append(x + 1)  # way: thread

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return made[0]


def by_trace(x):
    """While a debugger looks at each line."""
    seen = []

    def trace(frame, event, _):
        seen.append((event, frame.f_lineno))
        return trace

    def traced():
        for _ in range(2):
            y = x + 1  # way: trace
        return y

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        y = traced()
    finally:
        sys.settrace(before)
    assert len(seen) > 4
    return y


def by_profile(x):
    def profiled():
        return x + 1  # way: profile

    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        return profiled()
    finally:
        sys.setprofile(before)


def by_monitor(x):
    """Python 3.12's monitoring, which rewrites the instructions that run."""
    if sys.version_info < (3, 12):
        return by_trace(x)
    monitoring, seen = sys.monitoring, []
    monitoring.use_tool_id(3, "test_frames")
    monitoring.register_callback(3, monitoring.events.LINE, lambda *a: seen.append(a))
    monitoring.register_callback(3, monitoring.events.INSTRUCTION, lambda *a: seen.append(a))
    monitoring.set_events(3, monitoring.events.LINE | monitoring.events.INSTRUCTION)
    try:
        for _ in range(2):
            y = x + 1  # way: monitor
    finally:
        monitoring.set_events(3, 0)
        monitoring.free_tool_id(3)
    assert len(seen) > 4
    return y


def by_warm_code(x):
    """Instructions that the interpreter has specialised."""
    for _ in range(100):
        y = x + 1  # way: warm code
    return y


def by_library(x):
    """Through frames of Python's library."""

    @functools.singledispatch
    def add(y):
        return y + 1  # way: library

    return add(x)


WAYS = {
    "property": lambda x: Called(x).prop,
    "getattr": lambda x: Called(x).missing,
    "operator": lambda x: Called(x) + 1,
    "call": lambda x: Called(x)(1, b=2),
    "enter": lambda x: Called(x).__enter__(),
    "generator": by_generator,
    "inner generator": by_inner_generator,
    "comprehension": by_comprehension,
    "closure in comprehension": by_closure_in_comprehension,
    "C code": by_c_code,
    "sort": by_sort,
    "partial": by_partial,
    "coroutine": by_coroutine,
    "async generator": by_async_generator,
    "class body": by_class_body,
    "except": by_except,
    "finally": by_finally,
    "recursion": by_recursion,
    "many cells": by_many_cells,
    "match": by_match,
    "many arguments": by_many_arguments,
    "thread": by_thread,
    "trace": by_trace,
    "profile": by_profile,
    "monitor": by_monitor,
    "warm code": by_warm_code,
    "library": by_library,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_line_is_right_however_python_came_to_it(way, x, frames_read):
    y = WAYS[way](x)
    if way == "monitor" and sys.version_info < (3, 12):
        way = "trace"
    assert told(y) == f"{HERE}:{line_of(f'way: {way}')}"


def test_a_line_far_into_a_long_function_is_right(x, frames_read):
    assert told(by_long_function(x)) == "long.py:2003"


def test_a_with_statements_own_call_has_the_line_of_the_method(x, frames_read):
    with Called(x) as y:
        assert told(y) == f"{HERE}:{line_of('way: enter')}"


def test_frames_of_a_backward_in_python_are_read_on_autograds_threads(x, frames_read):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g + 7  # in a backward

    x.requires_grad_()
    Double.apply(x).sum().backward()
    assert line_of("# in a backward") in {n for _, n in locations(x.grad, "aten::add.Tensor")}
