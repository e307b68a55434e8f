"""`import torch_pjrt` changes nothing for programs on the CPU: the same programs are run with and
without it, each kind in one process."""

import json
import subprocess
import sys
from pathlib import Path

import cpu_programs
import pytest

FILE = Path(cpu_programs.__file__)


def outcomes(group: str, *how: str) -> dict[str, object]:
    command = [sys.executable, str(FILE), group, *how]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, ran.stderr[-3000:]
    return json.loads(lines[-1].removeprefix("RESULT "))


@pytest.fixture(scope="module")
def programs() -> tuple[dict[str, object], dict[str, object]]:
    return outcomes("programs"), outcomes("programs", "import")


@pytest.mark.parametrize("name", cpu_programs.PROGRAMS)
def test_cpu_program_does_the_same_after_the_import(name, programs):
    without, after = programs
    assert after[name] == without[name]


def test_pytorch_s_own_modules_do_the_same_after_the_import():
    without, after = outcomes("modules"), outcomes("modules", "import")
    assert len(without) > 100
    assert {k: v for k, v in after.items() if v != without[k]} == {}
    failed = [k for k, v in without.items() if v[0] and isinstance(v[0][0], str)]
    assert len(failed) < len(without) / 4, failed  # most of them run
