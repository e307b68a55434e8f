"""Stored programs are machine code: they are loaded only where nobody else could have put them, and
only by processes whose plugin was told the same."""

import os
import re
from pathlib import Path

import pytest
from test_cache import PROGRAM, program, programs  # noqa: F401 - a fixture

from torch_pjrt import _plugin_environment

STRANGER = 12345

# NaN is compared, which XLA's fast math gets wrong: then numbers show whose program ran.
NAN = """
import json, os, torch, torch_pjrt
CHANGE
x = torch.tensor([float("nan"), 1.0]).to("xla")
print(json.dumps(dict(out=(x != x).tolist(), compiles=torch_pjrt.metrics.compiles())))
"""
FAST = "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false"
SET = f"os.environ['XLA_FLAGS'] = {FAST!r}"
COMPILES = "(torch.ones(3, device='xla') + 1).tolist()"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")


def test_flags_set_after_the_import_are_part_of_the_key(program):  # noqa: F811
    fast, _ = program(NAN.replace("CHANGE", SET))
    clean, said = program(NAN.replace("CHANGE", ""))
    assert (fast["compiles"], clean["compiles"]) == (1, 1), "nothing was shared"
    assert clean["out"] == [True, False]
    assert f"XLA_FLAGS={FAST} ->" in said, "the compile is explained"
    again, _ = program(NAN.replace("CHANGE", ""), XLA_FLAGS=FAST)
    assert again["compiles"] == 0, "the same flags, given in time, are the same environment"


@pytest.mark.parametrize("start", ["torch_pjrt.devices()", COMPILES], ids=["client", "compile"])
def test_flags_set_after_the_client_was_made_are_told_once_and_store_nothing(
    start,
    program,  # noqa: F811
    tmp_path,
):
    late, said = program(NAN.replace("CHANGE", f"{start}; {SET}") + "(x + 1).tolist()\n")
    assert late["out"] == [True, False]
    assert said.count("XLA_FLAGS changed after the device was started") == 1
    assert len(programs(tmp_path / "cache")) == (start == COMPILES), "nothing after the change"


def test_variables_that_the_plugins_row_names_are_part_of_the_key(program):  # noqa: F811
    code = PROGRAM.replace(
        "import json, os, torch, torch_pjrt",
        "import json, os, torch, torch_pjrt\n"
        "cpu = torch_pjrt.plugins.find_cpu()\n"
        "torch_pjrt._C.register_plugin('CPU', cpu.library, cpu.options, cpu.compile_options,"
        " False, '', ['MYCHIP_*', 'OTHER'], {'driver': os.environ.get('DRIVER', '1')})",
    )
    assert program(code)[0]["compiles"] == 1
    assert program(code, UNRELATED="1", XLA_FLAGS="")[0]["compiles"] == 0
    for changed in ({"MYCHIP_FLAGS": "1"}, {"MYCHIP_FLAGS": "2"}, {"OTHER": "1"}, {"DRIVER": "2"}):
        assert program(code, **changed)[0]["compiles"] == 1, changed
        assert program(code, **changed)[0]["compiles"] == 0, changed


def test_versions_of_driver_and_libraries_are_facts_of_the_plugins_that_use_them(
    monkeypatch, tmp_path
):
    driver = tmp_path / "version"
    driver.write_text("NVRM version: 570.86.15\nGCC version: 12\n")
    monkeypatch.setitem(_plugin_environment._DRIVERS, "CUDA", (str(driver), "/nonexistent"))
    monkeypatch.setitem(_plugin_environment._LIBRARIES, "CUDA", re.compile("pytest"))
    found = _plugin_environment.facts("CUDA")
    assert found == {str(driver): "NVRM version: 570.86.15", "pytest": pytest.__version__}
    assert _plugin_environment.facts("CPU") == {}
    assert _plugin_environment.variables("CPU") == ("XLA_FLAGS",)
    assert "LIBTPU_INIT_ARGS" in _plugin_environment.variables("TPU")
    assert "NVIDIA_TF32_OVERRIDE" in _plugin_environment.variables("CUDA13")
    assert _plugin_environment.variables("STRANGE") == (), "then all that are known count"


def test_file_of_flags_counts_by_what_stands_in_it(program, tmp_path):  # noqa: F811
    flags = tmp_path / "flags"
    flags.write_text("--xla_cpu_enable_fast_math=false\n")
    assert program(XLA_FLAGS=str(flags))[0]["compiles"] == 1
    assert program(XLA_FLAGS=str(flags))[0]["compiles"] == 0
    flags.write_text(FAST.replace(" ", "\n") + "\n")
    assert program(XLA_FLAGS=str(flags))[0]["compiles"] == 1


# ---- owners and modes -----------------------------------------------------------------------


def of_a_stranger(cache: Path) -> None:
    os.chown(cache, STRANGER, STRANGER)


def below_a_strangers(cache: Path) -> None:
    os.chown(cache.parent, STRANGER, STRANGER)


def of_a_group(cache: Path) -> None:
    os.chown(cache, -1, STRANGER)
    cache.chmod(0o770)


def of_everybody(cache: Path) -> None:
    cache.chmod(0o777 | 0o1000)


def below_a_groups(cache: Path) -> None:
    cache.parent.chmod(0o770)


WEAK = {
    "of another user": (of_a_stranger, "belongs to another user (12345)"),
    "below another user's": (below_a_strangers, "belongs to another user (12345)"),
    "of a group": (of_a_group, "other users may write to"),
    "of everybody, sticky": (of_everybody, "other users may write to"),
    "below a group's": (below_a_groups, "other users may write to"),
}


@as_root
@pytest.mark.parametrize("weaken", WEAK)
def test_folder_that_others_could_fill_is_refused_with_words(weaken, program, tmp_path):  # noqa: F811
    how, words = WEAK[weaken]
    cache = tmp_path / "above" / "cache"
    env = {"TORCH_PJRT_CACHE": str(cache)}
    program(**env)
    assert len(programs(cache)) == 1
    how(cache)
    refused, said = program(PROGRAM + "(x + 2).tolist()\n", **env)
    assert refused["compiles"] == 1, "what lies there is not run"
    assert said.count("going on without") == 1
    assert words in said
    assert len(programs(cache)) == 1, "and nothing is put there"
    shared, said = program(TORCH_PJRT_CACHE_SHARED="1", **env)
    assert (shared["compiles"], said) == (0, ""), "whoever asks for it may trust it"


@as_root
@pytest.mark.parametrize("weaken", ["owner", "group", "mode"])
def test_file_that_others_could_write_is_not_run(weaken, program, tmp_path):  # noqa: F811
    program()
    (file,) = programs(tmp_path / "cache")
    if weaken == "owner":
        os.chown(file, STRANGER, STRANGER)
    elif weaken == "group":
        os.chown(file, -1, STRANGER)
        file.chmod(0o660)
    else:
        file.chmod(0o602)
    refused, said = program()
    assert refused["compiles"] == 1
    assert said.count("not used: ") == 1
    assert program() == (program()[0], ""), "it was replaced by ours"
    assert program()[0]["compiles"] == 0


@as_root
def test_shared_folder_is_read_and_never_written(program, tmp_path):  # noqa: F811
    program()
    cache = tmp_path / "cache"
    for path in (cache, *cache.iterdir()):
        os.chown(path, STRANGER, STRANGER)
    before = {p.name: p.stat().st_mtime_ns for p in cache.iterdir()}
    done, said = program(
        PROGRAM + "(x + 2).tolist()\nprint(json.dumps(torch_pjrt.metrics.compiles()))",
        TORCH_PJRT_CACHE_SHARED="1",
    )
    assert (done, said) == (1, ""), "one is loaded, the other compiled"
    assert {p.name: p.stat().st_mtime_ns for p in cache.iterdir()} == before


@as_root
def test_strangers_digest_of_a_plugin_is_not_believed(program, tmp_path):  # noqa: F811
    program()
    (digest,) = (tmp_path / "cache").glob("plugin-*")
    digest.write_text("0" * 31 + "1" + digest.read_text()[32:])
    assert program()[0]["compiles"] == 1, "another plugin, as far as that file says"
    os.chown(digest, STRANGER, STRANGER)
    assert program()[0]["compiles"] == 0, "the plugin's own bytes count"


def test_verify_names_files_of_others(run_python, program, tmp_path):  # noqa: F811
    program()
    (file,) = programs(tmp_path / "cache")
    file.chmod(0o606)
    env = {"TORCH_PJRT_CACHE": str(tmp_path / "cache")}
    found = run_python("-m", "torch_pjrt", "cache", "verify", **env)
    assert found.returncode == 1
    assert "other users may write to" in found.stdout
