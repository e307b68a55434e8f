"""One program over eight CPU devices, by annotation.

The cases of spmd_cases.py run in one process, each a test here; some again in GSPMD's form.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import spmd_set_cases
from spmd_cases import CASES

HERE = Path(__file__).resolve().parent


def run_cases(*names: str, program: str = "spmd_cases.py", **env: str) -> dict[str, str]:
    """What each case raised, by name; a case that took the process with it has no entry."""
    done = subprocess.run(
        [sys.executable, str(HERE / program), *names],
        capture_output=True,
        text=True,
        env=os.environ | {"TORCH_PJRT_CPU_DEVICES": "8", "TORCH_PJRT_CACHE": "off"} | env,
        cwd=HERE.parents[1],
        timeout=900,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    assert done.returncode == 0 and lines, done.stderr[-4000:]
    found: dict[str, str] = json.loads(lines[-1])
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    """All cases, run once."""
    return run_cases()


@pytest.fixture(scope="module")
def found_of_sets() -> dict[str, str]:
    """The cases of spmd_set_cases.py, run once."""
    return run_cases(program="spmd_set_cases.py")


@pytest.mark.parametrize("name", spmd_set_cases.CASES)
def test_meshes_and_reports(found_of_sets, name):
    assert found_of_sets[name] == "", found_of_sets[name]


@pytest.mark.parametrize("name", CASES)
def test_shardy(found, name):
    assert found[name] == "", found[name]


def test_gspmd_form_serves_the_same_promises():
    names = [
        "the_order_of_a_spec_and_of_operands_is_kept",
        "the_output_shows_its_real_sharding",
        "a_replicated_argument_stays_whole",
        "an_asked_output_sharding_is_chosen",
        "a_permuted_mesh_works",
        "an_mlp_trains_fully_sharded_on_2x4",
        "weights_are_held_once",
    ]
    found = run_cases(*names, TORCH_PJRT_SHARDY="0")
    assert found == dict.fromkeys(names, "")


def test_gspmd_form_refuses_manual_regions_in_words_and_splits_syncs():
    manual = "a_manual_region_is_one_program_with_the_collectives_it_names"
    sets = "each_set_of_devices_is_a_program_of_its_own"
    replicas = "each_manual_collective_does_it_between_replicas"
    found = run_cases(manual, sets, replicas, program="spmd_set_cases.py", TORCH_PJRT_SHARDY="0")
    assert found[replicas] == ""
    assert "NotImplementedError: spmd.manual: GSPMD's form has no manual regions" in found[manual]
    assert found[sets] == ""
