"""DTensor's doors on device xla, over eight devices of one process.

The cases of dtensor_cases.py run in one process, each a test here; some again in GSPMD's form.
test_dtensor_ranks.py has meshes of processes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dtensor_cases import CASES
from test_spmd import run_cases

HERE = Path(__file__).resolve().parent


def run(code: str, **env: str) -> None:
    """Runs a program over eight devices."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"TORCH_PJRT_CPU_DEVICES": "8"} | env,
        cwd=HERE.parents[1],
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """All cases, run once."""
    return run_cases(program="dtensor_cases.py")


@pytest.mark.parametrize("name", CASES)
def test_one_process(found, name):
    assert found[name] == "", found[name]


def test_gspmd_form_serves_slices_too():
    names = [
        "a_slice_says_nothing_of_the_other_axes",
        "a_sequence_parallel_block_trains_as_one_device_on_a_slice",
    ]
    found = run_cases(*names, program="dtensor_cases.py", TORCH_PJRT_SHARDY="0")
    assert found == dict.fromkeys(names, "")


OPEN = """
import torch, torch_pjrt, sys
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor, Shard
own = DTensor.from_local
"""


def test_a_program_without_a_mesh_of_xla_keeps_torchs_code():
    code = OPEN + (
        "from torch.distributed.fsdp._fully_shard import _fully_shard\n"
        "assert own.__module__ == 'torch.distributed.tensor._api'\n"
        "assert '__wrapped__' not in vars(own)\n"
        "assert '__wrapped__' not in vars(_fully_shard._get_mesh_info)\n"
        "assert not [m for m in sys.modules if m.startswith('torch_xla')]\n"
        "assert 'torch_pjrt.dtensor' not in sys.modules\n"
    )
    run(code)


@pytest.mark.parametrize("first", ["torch_pjrt", "torch.distributed.tensor"])
def test_the_order_of_imports_does_not_matter(first):
    run(
        f"import {first}\n"
        + OPEN
        + "mesh = init_device_mesh('xla', (8,))\n"
        + "t = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])\n"
        + "assert isinstance(t, DTensor) and t.full_tensor().sum().item() == 28\n"
        + "assert [m for m in sys.modules if m.startswith('torch_xla')]"
        + " == ['torch_xla.distributed.spmd']\n"
    )


def test_our_torch_xla_is_served_too():
    run(
        "import torch_xla\n"
        + OPEN
        + "mesh = init_device_mesh('xla', (8,))\n"
        + "t = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])\n"
        + "assert isinstance(t, DTensor) and t.placements == (Shard(0),)\n",
        PYTHONPATH=str(HERE.parents[1] / "compat/torch_xla"),
    )
