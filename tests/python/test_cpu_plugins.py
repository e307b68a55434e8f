"""Each CPU wheel: the little that must work on all, and the mistakes that are worked around.

A mistake is a StableHLO program that comes out wrong (docs/design/0006-cpu-plugins.md). Its test
fails where a wheel makes one that its row in torch_pjrt/plugins.py does not name, and where it no
longer makes one: then the name leaves the row, and with it what the workaround costs.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from torch_pjrt import plugins

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "core"))
import opcheck

NAN, INF = float("nan"), float("inf")
NUMERICS: dict[str, object] = {
    "xla_cpu_enable_fast_min_max": False,
    "xla_allow_excess_precision": False,
}


@pytest.fixture(
    scope="module", params=plugins.CPU_WHEELS, ids=[w.distribution for w in plugins.CPU_WHEELS]
)
def wheel(request) -> plugins.CpuWheel:
    assert plugins.find_wheel(request.param), "`make` installs it: requirements/cpu-plugins.txt"
    return request.param


@pytest.fixture(scope="module")
def tool(wheel) -> Iterator[opcheck.Tool]:
    path, found = opcheck.tool_path(), plugins.find_wheel(wheel)
    assert path and found
    made = opcheck.Tool(path, plugins.Plugin("CPU", found[0], wheel.distribution))
    yield made
    made.close()


@dataclass(frozen=True)
class Program:
    """What a compiler gets wrong: a body of StableHLO over %a (and %b), and what is right."""

    body: str
    args: list[torch.Tensor]
    right: torch.Tensor
    options: dict[str, object]

    def comes_out_right(self, tool: opcheck.Tool) -> bool:
        names = [f"%{n}: {self.mlir(t)}" for n, t in zip("ab", self.args, strict=False)]
        head = f"func.func public @main({', '.join(names)}) -> ({self.mlir(self.right)})"
        text = f'module @"m" {{\n  {head} {{\n{self.body}\n  }}\n}}\n'
        tool.start(self.options, ())
        try:
            (got,) = tool.run_module(text, self.args, [opcheck.type_text(self.right)])
        except opcheck.ToolError as refused:
            if "hlo verifier" not in str(refused):
                raise
            return False
        return torch.equal(got.nan_to_num(nan=-77), self.right.nan_to_num(nan=-77))

    @staticmethod
    def mlir(t: torch.Tensor) -> str:
        names = {torch.bool: "i1", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
                 torch.int64: "i64", torch.float32: "f32"}  # fmt: skip
        return f"tensor<{'x'.join([*map(str, t.shape), names[t.dtype]])}>"


def program(body: str, *args: torch.Tensor, right: torch.Tensor, **options: object) -> Program:
    return Program(body, list(args), right, options or NUMERICS)


OVERFLOWS = torch.tensor([46341, 50000, 3], dtype=torch.int32)
BELOW_ZERO = """
    %z = stablehlo.constant dense<0> : tensor<3xi32>
    %c = stablehlo.compare LT, %x, %z, SIGNED : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi1>
    return %c : tensor<3xi1>"""
COUNTED = (torch.arange(24) * 3 + 1) % 11
ANGLES = torch.linspace(-3, 3, 64)

MISTAKES = {
    # z = (-a).reshape(-1); z[1:4] = 2 * (-a)[0, :3]
    "updates": program(
        """
    %n = stablehlo.negate %a : tensor<2x4xf32>
    %z = stablehlo.reshape %n : (tensor<2x4xf32>) -> tensor<8xf32>
    %s = stablehlo.slice %n [0:1, 0:3] : (tensor<2x4xf32>) -> tensor<1x3xf32>
    %u = stablehlo.reshape %s : (tensor<1x3xf32>) -> tensor<3xf32>
    %v = stablehlo.add %u, %u : tensor<3xf32>
    %i = stablehlo.constant dense<1> : tensor<i64>
    %r = stablehlo.dynamic_update_slice %z, %v, %i
      : (tensor<8xf32>, tensor<3xf32>, tensor<i64>) -> tensor<8xf32>
    return %r : tensor<8xf32>""",
        torch.arange(1.0, 9).reshape(2, 4),
        right=torch.tensor([-1.0, -2, -4, -6, -5, -6, -7, -8]),
    ),
    "bitcasts": program(
        """
    %w = stablehlo.bitcast_convert %a : (tensor<2x4xi8>) -> tensor<2xi32>
    %r = stablehlo.bitcast_convert %w : (tensor<2xi32>) -> tensor<2x2xi16>
    return %r : tensor<2x2xi16>""",
        torch.arange(8, dtype=torch.int8).reshape(2, 4),
        right=torch.arange(8, dtype=torch.int8).view(torch.int16).reshape(2, 2),
    ),
    "bool products": program(
        """
    %m = stablehlo.convert %b : (tensor<4xi1>) -> tensor<4xf32>
    %r = stablehlo.multiply %a, %m : tensor<4xf32>
    return %r : tensor<4xf32>""",
        torch.tensor([NAN, INF, 1, 2]),
        torch.tensor([False, False, True, False]),
        right=torch.tensor([NAN, NAN, 1, 0]),
    ),
    "bool sums": program(
        """
    %t = stablehlo.constant dense<true> : tensor<2xi1>
    %s = stablehlo.add %t, %t : tensor<2xi1>
    %r = stablehlo.and %s, %a : tensor<2xi1>
    return %r : tensor<2xi1>""",
        torch.tensor([True, False]),
        right=torch.tensor([True, False]),
    ),
    "squares": program(
        f"    %x = stablehlo.multiply %a, %a : tensor<3xi32>{BELOW_ZERO}",
        OVERFLOWS,
        right=torch.tensor([True, True, False]),
    ),
    "narrow masks": program(
        """
    %n = "stablehlo.convert"(%a) : (tensor<24xi64>) -> tensor<24xi8>
    %x = stablehlo.reshape %n : (tensor<24xi8>) -> tensor<4x6xi8>
    %i = stablehlo.iota dim = 0 : tensor<4x6xi32>
    %j = stablehlo.iota dim = 1 : tensor<4x6xi32>
    %m = stablehlo.compare LE, %j, %i, SIGNED
      : (tensor<4x6xi32>, tensor<4x6xi32>) -> tensor<4x6xi1>
    %z = stablehlo.constant dense<0> : tensor<4x6xi8>
    %s = stablehlo.select %m, %x, %z : tensor<4x6xi1>, tensor<4x6xi8>
    %r = stablehlo.reshape %s : (tensor<4x6xi8>) -> tensor<24xi8>
    return %r : tensor<24xi8>""",
        COUNTED,
        right=COUNTED.to(torch.int8).view(4, 6).tril().reshape(-1),
    ),
    "arctangents": program(
        """
    %r = "chlo.atan"(%a) : (tensor<64xf32>) -> tensor<64xf32>
    %d = stablehlo.subtract %r, %b : tensor<64xf32>
    %s = stablehlo.abs %d : tensor<64xf32>
    %e = stablehlo.constant dense<1.0e-5> : tensor<64xf32>
    %c = stablehlo.compare LT, %s, %e : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xi1>
    return %c : tensor<64xi1>""",
        ANGLES,
        torch.atan(ANGLES),
        right=torch.ones(64, dtype=torch.bool),
    ),
}
# |x| is taken for non-negative just as squares are.
MAGNITUDES = program(
    f"    %x = stablehlo.abs %a : tensor<3xi32>{BELOW_ZERO}",
    torch.tensor([-(2**31), -5, 3], dtype=torch.int32),
    right=torch.tensor([True, False, False]),
)
LOSES_NAN = program(
    """
    %i = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %r = stablehlo.reduce(%a init: %i) applies stablehlo.maximum across dimensions = [0]
      : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
    return %r : tensor<f32>""",
    torch.tensor([1, NAN, 2, 3, 4, NAN, 6, 7]),
    right=torch.tensor(NAN),
    xla_allow_excess_precision=False,
)


def has_avx512() -> bool:
    return " avx512bw " in Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wheels_row_names_the_mistakes_that_its_compiler_makes(tool, wheel, name):
    if name == "narrow masks" and not has_avx512():
        pytest.skip("only vectors of AVX-512 are masked wrongly")
    right = MISTAKES[name].comes_out_right(tool)
    assert right == (name not in wheel.mistakes), (
        f"{wheel.distribution} is right now: its row in torch_pjrt/plugins.py can drop '{name}'"
    )


def test_magnitudes_are_taken_for_what_squares_are(tool, wheel):
    assert MAGNITUDES.comes_out_right(tool) == ("squares" not in wheel.mistakes)


def test_maxima_lose_nan_without_the_option_that_every_wheel_gets(tool):
    assert not LOSES_NAN.comes_out_right(tool)
    tool.start(NUMERICS, ())
    assert Program(LOSES_NAN.body, LOSES_NAN.args, LOSES_NAN.right, NUMERICS).comes_out_right(tool)


def test_a_version_that_nobody_tried_is_taken_to_make_every_mistake(wheel):
    assert set(wheel.mistakes_of("99.9")) == set(MISTAKES)
    assert wheel.mistakes_of(wheel.version) == wheel.mistakes


USE = """
import json, torch, torch_pjrt
from torch.nn import functional as F
torch.set_num_threads(1)

def train(device):
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
    m = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(512, 10))
    x, y = torch.randn(4, 3, 8, 8), torch.arange(4)
    m, x, y = m.to(device), x.to(device), y.to(device)
    o = torch.optim.AdamW(m.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        o.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        o.step()
        torch_pjrt.sync()
        losses.append(loss.detach())
    return [float(v) for v in losses]

def edges(device):
    big = torch.tensor([46341, 50000, 3], dtype=torch.int32).to(device)
    z = (-torch.arange(1.0, 9).reshape(2, 4)).to(device)
    flat = z.reshape(-1)
    flat[1:4] = 2 * z[0, :3]
    holes = torch.tensor([float("nan"), float("inf"), 1, 2]).to(device)
    x = ((torch.arange(24) * 3 + 1) % 11).to(device)
    bits = torch.arange(8, dtype=torch.int8).to(device).view(torch.int32).view(torch.int16)
    return [(big * big < 0).tolist(), (big * big).abs().tolist(), flat.tolist(), bits.tolist(),
            str((holes * (holes < 0)).tolist()), str(holes.max().item()),
            x.to(torch.int8).view(4, 6).tril_().tolist(),
            torch.sort(holes[2:], descending=True).values.tolist(),
            torch.linalg.inv(torch.eye(3, device=device) * 2).tolist()]

ours, eager = train("xla"), train("cpu")
y = torch.tanh(torch.ones(16, 16, device="xla") @ torch.ones(16, 16, device="xla"))
torch_pjrt.sync(wait=True)
p = torch_pjrt.graph.last().program()
print(json.dumps({
    "losses": [ours, eager], "edges": [edges("xla"), edges("cpu")],
    "compiles": torch_pjrt.metrics.compiles(), "library": torch_pjrt.plugins.find_cpu().library,
    "optimized": p.optimized, "memory": p.memory, "counters": torch_pjrt.metrics.counters(),
}))
"""


@pytest.fixture(scope="module")
def used(wheel, run_python, tmp_path_factory) -> Callable[[], dict]:
    """Runs USE on the wheel, with a folder for programs: a second call finds them there."""
    folder = str(tmp_path_factory.mktemp("programs"))

    def use() -> dict:
        env = {"TORCH_PJRT_CPU_PLUGIN": wheel.distribution, "TORCH_PJRT_CACHE": folder}
        done = run_python(code=USE, **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return use


@pytest.fixture(scope="module")
def first(used) -> dict:
    return used()


def test_training_gives_eagers_losses(first, wheel):
    assert first["library"].endswith(wheel.library)
    ours, eager = (torch.tensor(v) for v in first["losses"])
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    assert ours[-1] < ours[0]


def test_what_compilers_get_wrong_comes_out_right(first):
    ours, eager = first["edges"]
    assert ours == eager


def test_the_optimized_program_names_the_users_lines(first):
    assert first["optimized"].startswith("HloModule")
    assert "<string>:" in first["optimized"]
    assert first["memory"]["outputs"] >= 16 * 16 * 4


def test_programs_are_loaded_from_the_disk_by_the_next_process(first, used):
    again = used()
    assert first["compiles"] > 0
    assert again["compiles"] == 0
    assert again["edges"] == first["edges"]
