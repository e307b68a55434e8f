"""The shared case programs: each is something that once went wrong for users of such backends.

They run in one go, each in a forked child of shared/cases/run.py; every case is a test here.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "cases"
FILES = sorted(CASES.glob("[0-9]*.py"))
GAPS: dict[str, str] = tomllib.loads((ROOT / "tests" / "known_gaps.toml").read_text())["cases"]


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
    assert set(GAPS) <= {f.name for f in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_case(file, failures):
    if file.name in GAPS:
        assert file.name in failures, f"passes now: take it out of known_gaps.toml ({file.name})"
        pytest.xfail(GAPS[file.name])
    assert failures.get(file.name) is None
