"""What a plugin can is data of its row: what follows from each fact, and that nothing else asks."""

import ast
import re
from pathlib import Path

import pytest
from fake_plugin import ROOT

from torch_pjrt import plugins

NAMES = ("cpu", "tpu", "cuda", "rocm", "gpu", "neuron")


def names_of_platforms(path: Path) -> set[str]:
    """Platforms that a C++ file names in a string."""
    text = re.sub(r"//.*", "", path.read_text())
    return set(re.findall(rf'"({"|".join(NAMES)})"', text))


def test_nothing_asks_for_a_platform_by_name():
    rows = ROOT / "src" / "client" / "platforms.cpp"
    assert names_of_platforms(rows) >= {"cpu", "tpu", "cuda"}
    allowed = {"factories.cpp": {"cpu"}, "random.cpp": {"cpu"}}  # names of PyTorch's device
    for path in (ROOT / "src").rglob("*.[ch]*"):
        if path != rows:
            assert names_of_platforms(path) <= allowed.get(path.name, set()), path


def test_no_python_compares_the_platform():
    for path in (ROOT / "torch_pjrt").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                assert "platform" not in ast.unparse(node), f"{path}:{node.lineno}"


@pytest.fixture
def run(run_python):
    """Runs code with the CPU plugin's row changed; gives what it printed, and standard error."""

    def run(code: str, env: dict[str, str] | None = None, **row: object) -> tuple[str, str]:
        done = run_python(
            code=PRELUDE.format(row=row) + code, TORCH_PJRT_TIERS="off", **(env or {})
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, done.stderr

    return run


PRELUDE = """
from dataclasses import replace
import torch, torch_pjrt
from torch_pjrt import plugins
plugins.register([replace(plugins.find_cpu(), **{row!r})])
def attempt(f):
    try:
        return f()
    except Exception as e:
        return f"{{type(e).__name__}}: {{e}}"
def hlo(t):
    return torch_pjrt.graph.of(t).hlo
def cuts():
    return [n for n in torch_pjrt.metrics.counters() if n.startswith("aten::")]
"""


def test_a_row_with_a_name_that_nobody_knows_is_refused(run):
    said, _ = run("""
for row in ({"capabilities": {"wings": True}}, {"capabilities": {"host calls": "no"}},
            {"capabilities": {"missing types": "f65"}}, {"mistakes": ("sloth",)}):
    print(attempt(lambda: plugins.register([replace(plugins.find_cpu(), **row)])))
""")
    wings, calls, types, mistakes = said.splitlines()
    assert wings.startswith(
        "ValueError: no capability of plugins is called 'wings'; known are host"
    )
    assert calls == "ValueError: capability 'host calls' of a plugin is true or false"
    assert "no element type is called 'f65'" in types
    assert mistakes.startswith("ValueError: no mistake of compilers is called 'sloth'")


def test_the_cpu_plugins_facts_are_those_of_its_platform(run):
    said, _ = run("print(torch_pjrt._C.client_info()['capabilities'])")
    facts = ast.literal_eval(said)
    assert facts["host memory"]
    assert facts["host calls"]
    assert facts["float64"]
    assert not facts["optimization levels"]
    assert facts["flat parameters"] == 3200


WHOLE = """
torch.manual_seed(0)
big = 2**40
x = torch.randint(-big, big, (3, 4, 5)) ; y = torch.randint(-big, big, (3, 5, 2))
assert torch.equal((x.to("xla") @ y.to("xla")).cpu(), x @ y)
assert torch.equal((x[0].to("xla") @ y[0].to("xla")).cpu(), x[0] @ y[0])
assert torch.equal((x[0, 0].to("xla") @ y[0].to("xla")).cpu(), x[0, 0] @ y[0])
assert torch.equal(torch.einsum("bij,bjk->ik", x.to("xla"), y.to("xla")).cpu(),
                   torch.einsum("bij,bjk->ik", x, y))
print(hlo(x.to("xla") @ y.to("xla")))
"""


def test_products_of_int64_without_a_dot_for_them_are_right(run):
    said, _ = run(WHOLE, recorded_for="tpu")
    assert "dot_general" not in said
    said, _ = run(WHOLE)
    assert "dot_general" in said


CONVOLUTIONS = """
import itertools
F = torch.nn.functional
torch.manual_seed(0)
two = (1, 2)
for dims, groups, stride, padding, dilation in itertools.product(two, two, two, (0, 2), two):
    x = torch.randint(-9, 9, (2, 4) + (9,) * dims)
    w = torch.randint(-9, 9, (6, 4 // groups) + (3,) * dims)
    f = (F.conv1d, F.conv2d)[dims - 1]
    how = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
    assert torch.equal(f(x.to("xla"), w.to("xla"), **how).cpu(), f(x, w, **how)), how
    w = torch.randint(-9, 9, (4, 6 // groups) + (3,) * dims)
    f = (F.conv_transpose1d, F.conv_transpose2d)[dims - 1]
    assert torch.equal(f(x.to("xla"), w.to("xla"), **how).cpu(), f(x, w, **how)), how
x = torch.randint(-9, 9, (1, 2, 4, 5, 6)) ; w = torch.randint(-9, 9, (3, 2, 2, 3, 2))
assert torch.equal(F.conv3d(x.to("xla"), w.to("xla")).cpu(), F.conv3d(x, w))
print(hlo(F.conv3d(x.to("xla"), w.to("xla"))))
"""


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_convolutions_of_int64_without_one_for_them_are_right(run, platform):
    said, _ = run(CONVOLUTIONS, recorded_for=platform)
    assert "stablehlo.convolution" not in said


def test_fourier_transforms_of_float64_without_one_for_them_cut_the_graph(run):
    code = """
x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
d = x.to("xla")
for f in (torch.fft.fft, torch.fft.rfft, lambda x: torch.fft.irfft(torch.fft.rfft2(x))):
    assert torch.allclose(f(d).cpu(), f(x))
print(cuts())
f32 = torch.fft.fft(d.float())
torch_pjrt.metrics.clear()
assert torch.allclose(torch.fft.fft(x.float()), torch.fft.fft(x.float().to("xla")).cpu(), atol=1e-5)
print(cuts())
"""
    said, warned = run(code, recorded_for="tpu")
    assert said.splitlines() == ["['aten::_fft_c2r', 'aten::_fft_r2c']", "[]"]
    assert "aten::_fft_r2c" in warned
    assert run(code)[0].splitlines() == ["[]", "[]"]


def test_float64_that_is_a_pair_of_float32_is_told_once(run):
    code = """
x = torch.ones(3, device="xla")
(x * 2).cpu()
print("between", flush=True)
for _ in range(2):
    (x.double() + 1).cpu()
    (x.double() * 3).cpu()
"""
    _, warned = run(code, recorded_for="tpu")
    assert warned.count("float64 is a pair of float32 numbers on tpu") == 1
    assert "float64 is a pair" not in run(code)[1]


def test_element_types_that_a_plugin_lacks_are_refused_in_words(run):
    said, _ = run("""
x = torch.ones(3).to("xla")
print(attempt(lambda: x.half().cpu()))
print(x.cpu().tolist())
""", capabilities={"missing types": "f16 c128"})  # fmt: skip
    assert said.startswith("NotImplementedError: cpu has no element type f16: found f16[3]")
    assert said.endswith("[1.0, 1.0, 1.0]\n")


def test_host_calls_and_host_memory_follow_the_row(run):
    code = """
x = torch.eye(3).to("xla")
print(torch.linalg.eigvalsh(x).cpu().tolist(), cuts())
print(attempt(lambda: len(torch.xla.mem_get_info())))
"""
    said = run(code)[0].splitlines()
    assert said == ["[1.0, 1.0, 1.0] []", "2"]
    said = run(code, capabilities={"host calls": False, "host memory": False})[0]
    assert "[1.0, 1.0, 1.0] ['aten::_linalg_eigh']" in said
    assert "NotImplementedError: torch.xla.mem_get_info: the cpu plugin does not tell" in said


def test_parameters_beyond_a_plugins_number_travel_as_one_tuple(run):
    code = """
xs = [torch.full((2,), float(i)).to("xla") for i in range(40)]
print(torch.stack(xs).sum().item(), sum(xs).tolist())
"""
    for most in (0, 5):
        said, _ = run(code, capabilities={"flat parameters": most})
        assert said == "1560.0 [780.0, 780.0]\n"


def test_random_bits_are_the_same_in_both_forms(run):
    code = """
import hashlib
torch_pjrt.manual_seed(7)
made = []
shapes = [(1,), (2,), (3,), (5, 7), (3, 4, 5), (1, 1), (), (128,), (9, 9, 9), (6, 1, 3), (0, 3)]
for shape in shapes:
    for dtype in (torch.float32, torch.float64):
        made.append(torch.rand(shape, device="xla", dtype=dtype))
    made.append(torch.randn(shape, device="xla"))
    made.append(torch.randint(0, 2**40, shape, device="xla"))
made.append(torch.randperm(77, device="xla"))
made.append(torch._standard_gamma(torch.rand(31, device="xla") + 0.1))  # a state that goes on
made.append(torch.poisson(torch.rand(31, device="xla") * 20))
print("rng_bit_generator" in hlo(torch.rand(3, device="xla")))
for t in made:
    data = t.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    print(t.dtype, hashlib.sha256(data).hexdigest())
"""
    op, written = (
        run(code, capabilities={"rng op": form})[0].splitlines() for form in (True, False)
    )
    assert (op[0], written[0]) == ("True", "False")
    assert op[1:] == written[1:]


def test_levels_reach_the_compiles_of_plugins_that_have_them(run):
    code = "print((torch.ones(3).to('xla') + 1).cpu().tolist())"
    level = {"TORCH_PJRT_OPTIMIZATION_LEVEL": "O1"}
    said, warned = run(code, env=level)
    assert said == "[2.0, 2.0, 2.0]\n"
    assert warned.count("TORCH_PJRT_OPTIMIZATION_LEVEL=O1: cpu plugins have no levels") == 1
    said, warned = run(code, env=level, capabilities={"optimization levels": True})
    assert said == "[2.0, 2.0, 2.0]\n"
    assert "have no levels" not in warned


def test_an_unknown_level_is_refused(run_python):
    done = run_python(code="import torch_pjrt", TORCH_PJRT_OPTIMIZATION_LEVEL="O7")
    assert done.returncode == 1
    assert "TORCH_PJRT_OPTIMIZATION_LEVEL: expected O0, O1, O2 or O3, found 'O7'" in done.stderr


def test_a_plugin_class_may_say_its_capabilities(monkeypatch):
    class Entry:
        name, group, value = "chip", "torch_pjrt.plugins", "chip:Plugin"

        def load(self):
            return type("P", (), {"library_path": lambda self: "/x.so",
                                  "capabilities": lambda self: {"float64": False}})  # fmt: skip

    found = plugins._from_class(Entry())
    assert found.capabilities == {"float64": False}
