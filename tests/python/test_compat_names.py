"""Every public name of torch_xla 2.9.0 is in compat/torch_xla, or stands among the gaps.

tests/peer/api.txt is the list; tests/peer/names.tsv the gaps, with reasons.
"""

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PEER = ROOT / "tests" / "peer"
sys.path.insert(0, str(ROOT / "tools"))

from peer import listed

LOOK = """
import importlib, json, warnings
warnings.simplefilter("ignore")
modules = MODULES
found = {}
for module, names in modules.items():
    try:
        m = importlib.import_module(module)
    except ImportError as error:
        found[module] = {n: f"import: {error}" for n in [*names, ""]}
        continue
    found[module] = {n: "" if hasattr(m, n) else "missing" for n in names}
    refused = [n for n in names if getattr(getattr(m, n, None), "refused", False)]
    found[module] |= {n: "refused" for n in refused}
print("FOUND" + json.dumps(found))
"""


def gaps() -> dict[tuple[str, str], str]:
    lines = (PEER / "names.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if line.strip() and not line.startswith("#")]
    return {(module, name): reason for module, name, reason in rows}


@pytest.fixture(scope="module")
def resolved(run_python) -> dict[str, dict[str, str]]:
    code = LOOK.replace("= MODULES", f"= {listed()!r}")
    path = str(ROOT / "compat" / "torch_xla")
    done = run_python(
        code=code, PYTHONPATH=os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout.rpartition("FOUND")[2])
    return found


def test_each_name_is_there_or_a_gap(resolved):
    assert sum(map(len, listed().values())) > 790
    missing = {(m, n) for m, names in resolved.items() for n, how in names.items()
               if how not in ("", "refused")}  # fmt: skip
    assert missing == set(gaps()), missing ^ set(gaps())
    assert all(len(reason) > 20 for reason in gaps().values())


def test_few_names_only_say_what_to_use_instead(resolved):
    refused = [f"{m}.{n}" for m, names in resolved.items() for n, how in names.items()
               if how == "refused"]  # fmt: skip
    public = [n for n in refused if "_XLAC" not in n]
    assert len(public) <= 79, public
    assert len(refused) <= 135, refused
