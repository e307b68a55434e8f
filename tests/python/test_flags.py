"""The flag table."""

import json
import re

from torch_pjrt import flags


def test_every_flag_has_help_and_a_known_type():
    rows = flags.table()
    assert all(f.help and f.type in ("bool", "int", "text") for f in rows)
    assert len({f.name for f in rows}) == len(rows)


def test_the_names_that_users_know_are_there():
    names = {f.name: f for f in flags.table()}
    assert names["XLA_COMPILATION_CACHE_SIZE"].default == "2048"
    assert names["XLA_IR_SHAPE_CACHE_SIZE"].default == "12288"
    assert {"PJRT_DEVICE", "XLA_PERSISTENT_CACHE_PATH", "XLA_FLAGS"} <= names.keys()
    assert names["XLA_FLAGS"].in_key
    assert not names["PJRT_DEVICE"].in_key


def test_the_command_prints_them_all(run_python):
    done = run_python("-m", "torch_pjrt", "flags", own_start=True, XLA_COMPILATION_CACHE_SIZE="77")
    assert done.returncode == 0, done.stderr
    for f in flags.table():
        assert f.name in done.stdout
    line = next(x for x in done.stdout.splitlines() if x.startswith("XLA_COMPILATION_CACHE_SIZE"))
    assert line.split()[2] == "77"
    assert "default 2048" in line


# ---- values that are not allowed ------------------------------------------------------------

BAD_OF_TYPE = {"bool": ("maybe", "2"), "int": ("abc", "1.5", "-1", "99999999999999999999", "0x10")}


def bad_values():
    """(variable, value) for every row that does not take any text, the rows' bounds included."""
    for f in flags.table():
        free = f.type == "text" and f.allowed == "any text"
        for value in () if free else BAD_OF_TYPE.get(f.type, ("nonsense", "x:")):
            yield f.name, value
        if f.type == "int":
            bounds = [int(n) for n in re.findall(r"\d+", f.allowed)]
            yield f.name, str(bounds[0] - 1)
            yield from ((f.name, str(n + 1)) for n in bounds[1:])


# A bad value ends the import; the next import, with the value put right, looks again.
IMPORTS = """
import json, os, sys, torch
said = []
for name, value in json.loads(os.environ.pop("CASES")):
    os.environ[name] = value
    try:
        import torch_pjrt
        said.append("imported")
    except Exception as e:
        said.append(f"{type(e).__name__}: {e}")
    del os.environ[name]
    for m in [m for m in sys.modules if m.partition(".")[0] == "torch_pjrt"]:
        del sys.modules[m]
import torch_pjrt
assert torch.ones(2, device="xla").tolist() == [1, 1]
print(json.dumps(said))
"""


def test_every_row_refuses_what_it_does_not_allow_at_the_import(run_python):
    cases = list(bad_values())
    rows = {f.name: f for f in flags.table()}
    assert {name for name, _ in cases} == {
        f.name for f in rows.values() if f.type != "text" or f.allowed != "any text"
    }
    done = run_python(code=IMPORTS, CASES=json.dumps(cases))
    assert done.returncode == 0, done.stderr
    for (name, value), said in zip(cases, json.loads(done.stdout.splitlines()[-1]), strict=True):
        first = f"ImportError: {name}: expected {rows[name].allowed}, found '{value}'"
        assert said.splitlines()[0] == first, (name, value)
        assert "unset it" in said


def test_each_bad_flag_is_told_in_one_message(run_python):
    env = {"TORCH_PJRT_CUT_WARNING": "abc", "TORCH_PJRT_DONATION": "perhaps"}
    done = run_python(code="import torch_pjrt", own_start=True, **env)
    assert done.returncode == 1, "an exception, not an abort"
    for name, value in env.items():
        assert done.stderr.count(f"{name}: expected") == 1
        assert f"found '{value}'" in done.stderr
