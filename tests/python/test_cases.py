"""The shared case programs: each is something that once went wrong for users of such backends.

They run in one go, each in a forked child of shared/cases/run.py; every case is a test here.
"""

import re
import subprocess
import sys
from pathlib import Path

import gaps
import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "cases"
FILES = sorted(CASES.glob("[0-9]*.py"))


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    """File name -> why it failed."""
    command = [sys.executable, str(CASES / "run.py"), "--device", "xla", "--imports", "torch_pjrt"]
    command += ["--sync", "torch_pjrt:sync", "--compiles", "torch_pjrt.metrics:compiles"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, cwd=ROOT, check=False
    )
    assert " pass on xla" in done.stdout, done.stdout + done.stderr
    return dict(re.findall(r"^FAIL (\S+) (.*)$", done.stdout, re.M))


@pytest.mark.skipif(not FILES, reason="no ../shared/cases beside this checkout")
def test_known_gaps_are_cases():
    assert gaps.cases("cases") <= {f.stem for f in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_case(file, failures):
    with gaps.expected("cases", file.stem):
        assert failures.get(file.name) is None
