"""The Python blocks of README.md and docs/*.md run as they stand, each in a process of its own.

AROUND has what a block's reader has already (a model, a batch), and what its page says comes out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
MODEL = """
import torch, torch.nn.functional as F, torch_pjrt
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).to("xla")
x = torch.randn(16, 8).to("xla")
"""


@dataclass(frozen=True)
class Around:
    """What stands before and after a block; `needs`: a package without which it cannot run."""

    before: str = ""
    after: str = ""
    env: dict[str, str] = field(default_factory=dict)
    needs: str = ""
    not_run: str = ""  # why it cannot run on this machine at all


# (page, first line of the block) -> what is around it. A block that is not here runs by itself.
AROUND = {
    ("README.md", "import torch"): Around(after="assert torch_pjrt.metrics.compiles() == 1"),
    ("docs/aot.md", 'program = torch_pjrt.aot.compile(model, (x,), topology="v5e:2x2")'): Around(
        MODEL, "assert program.memory.fits", needs="libtpu"
    ),
    ("docs/aot.md", 'run = torch_pjrt.aot.load("model.program")  # PJRT_DEVICE=TPU'): Around(
        not_run="wants a TPU; test_aot.py loads programs on the fake plugin"
    ),
    ("docs/compile.md", "opt = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)"): Around(
        MODEL + "lr, y = 1e-3, torch.arange(16).remainder(4).to('xla')",
        "losses = [step(x, y).item() for _ in range(6)]\n"
        "assert losses == sorted(losses, reverse=True)",
    ),
    ("docs/compile.md", "h = torch_pjrt.scan_layers(model.blocks, h)  #"): Around(
        MODEL + "model.blocks = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))\n"
        "model.to('xla')\nh, plain = x, x\n"
        "for block in model.blocks: plain = block(plain)",
        "torch.testing.assert_close(h, plain)",
    ),
    ("docs/debugging.md", "import torch_pjrt"): Around(
        MODEL + "model(x).sum().item()", "import os; assert os.path.getsize('run.html') > 1000"
    ),
    ("docs/debugging.md", "for read in torch_pjrt.explain().cuts:"): Around(
        MODEL + "model(x).sum().item()", "assert 'item: 1 cuts in 1 reads' in str(read)"
    ),
    ("docs/debugging.md", "with torch_pjrt.no_cuts():"): Around(
        MODEL + "def train_step(): model(x).square().mean().backward()"
    ),
    ("docs/debugging.md", "g = torch_pjrt.graph.of(y)  # or a list"): Around(
        MODEL + "y = model(x)", "import os; assert os.path.exists('y.html') and p.optimized"
    ),
    ("docs/distributed.md", "import torch.distributed as dist"): Around(
        MODEL,
        "model(x).sum().backward()",
        env={"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"},
    ),
    ("docs/export.md", "program = torch_pjrt.export.stablehlo(model, (x,))"): Around(
        MODEL, "torch.testing.assert_close(f(x), model(x))", needs="jaxlib"
    ),
    ("docs/host-ops.md", "u, s, v = torch.linalg.svd(x @ w)"): Around(
        MODEL + "w = torch.randn(8, 8).to('xla')",
        "found = torch_pjrt.metrics.counters()\n"
        "assert found['hostop::_linalg_svd'] == 1\n"
        "assert not [name for name in found if name.startswith('aten::')]",
    ),
    ("docs/life-of-an-op.md", "y = a + b"): Around(MODEL + "a, b = x, x * 2"),
    ("docs/seam.md", "class Plugin:"): Around(after="Plugin()"),
    ("docs/spmd.md", "from torch_pjrt import spmd"): Around(
        MODEL + "weight = model[0].weight", env={"TORCH_PJRT_CPU_DEVICES": "8"}
    ),
    ("docs/spmd.md", "from torch.distributed import checkpoint as dcp"): Around(
        MODEL + "from torch_pjrt import spmd\nfolder = 'saved'\n"
        "mesh = spmd.Mesh(range(8), (8,), ('model',))\n"
        "spmd.mark_sharding(model[0].weight, mesh, ('model', None))\n"
        "before = model[0].weight.detach().cpu()",
        "assert torch.equal(model[0].weight.detach().cpu(), before)",
        env={"TORCH_PJRT_CPU_DEVICES": "8"},
    ),
    ("docs/spmd.md", "@manual.region(mesh, in_specs="): Around(
        MODEL + "from torch_pjrt import manual, spmd\n"
        "mesh = spmd.Mesh(range(8), (8,), ('data',))\nw = torch.randn(8, 8).to('xla')",
        "torch.testing.assert_close(layer(x, w), torch.relu(x @ w))",
        env={"TORCH_PJRT_CPU_DEVICES": "8"},
    ),
    ("docs/spmd.md", "from torch.distributed.device_mesh import"): Around(
        MODEL + "model.w1, model.w2 = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)\n"
        "model.to('xla')",
        "assert model.w1.weight.shape == (8, 8)",
        env={"TORCH_PJRT_CPU_DEVICES": "8"},
    ),
}


@dataclass(frozen=True)
class Block:
    """One block; `line` is the first line of its code in the page."""

    page: str
    line: int
    code: str

    def around(self) -> Around:
        first = self.code.partition("\n")[0]
        keys = [k for k in AROUND if k[0] == self.page and first.startswith(k[1])]
        return AROUND[keys[0]] if keys else Around()


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.S | re.M):
            line = text.count("\n", 0, found.start(1)) + 1
            yield Block(page.relative_to(ROOT).as_posix(), line, found[1])


BLOCKS = list(blocks())


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: f"{b.page}:{b.line}")
def test_a_block_of_the_docs_runs(block, tmp_path, run_python):
    around = block.around()
    if around.not_run:
        pytest.skip(around.not_run)
    if around.needs and find_spec(around.needs) is None:
        pytest.skip(f"wants {around.needs}, which is not installed")
    code = f"import os, sys\nos.chdir({str(tmp_path)!r})\nsys.path.insert(0, {str(ROOT)!r})\n"
    code += f"{around.before}\n{block.code}\n{around.after}\nprint('ran to the end')"
    done = run_python(code=code, **around.env)
    assert done.stdout.endswith("ran to the end\n"), done.stderr[-3000:]


def test_what_stands_around_blocks_is_of_blocks_that_exist():
    firsts = [(b.page, b.code.partition("\n")[0]) for b in BLOCKS]
    of = {key: [f for f in firsts if f[0] == key[0] and f[1].startswith(key[1])] for key in AROUND}
    assert [key for key, found in of.items() if len(found) != 1] == []
