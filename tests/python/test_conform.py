"""`python -m torch_pjrt conform`: each kind of answer, on a plugin that fails as it is told."""

import json
import re
from dataclasses import replace

import pytest
from fake_plugin import ROOT, fake_env

from torch_pjrt import _C, _conform, _conform_ops, plugins

ENTRY = re.compile(r"PJRT_Api::(PJRT_\w+)|api->(PJRT_(?!Api)\w+)\(|\"(PJRT_FFI_\w+)\"")


def calls_of_the_sources() -> set[str]:
    """Every entry of the API table, and of its extensions, that src/pjrt calls."""
    files = [p for p in (ROOT / "src").rglob("*.[ch]*") if not p.name.startswith("conform")]
    texts = (re.sub(r"//.*", "", p.read_text()) for p in files)
    found = [m for text in texts for m in ENTRY.finditer(text)]
    return {next(filter(None, m.groups())) for m in found}


def test_each_call_that_the_sources_make_has_a_row_and_no_other():
    made = calls_of_the_sources()
    assert len(made) > 40
    assert {name for name, *_ in _C.conform_calls()} == made


def test_rows_have_names_of_their_own_and_say_what_users_miss():
    rows = _conform.table()
    assert len({r.name for r in rows}) == len(rows) > 100
    assert all(r.missed and r.name for r in rows)
    groups = ["C API", "behaviour", "dtypes", "ops", "product"]
    assert list(dict.fromkeys(r.group for r in rows)) == groups


def test_the_dtype_rows_are_all_that_the_device_has():
    names = {t for r in _conform_ops.DTYPES for t in [r.name]}
    assert len(names) == 17


@pytest.fixture
def ask(fake, monkeypatch):
    """Asks rows of the fake plugin: {name: row}. `env` says what it does wrong."""

    def asked(*names: str, seconds: int = 60, topology: str = "fake:2", **env: str):
        for name, value in (fake_env(fake) | env).items():
            monkeypatch.setenv(name, value)
        rows = [r for r in _conform.table() if r.name in names]
        assert len(rows) == len(names)
        plugin = plugins.Plugin("FAKE", fake, "--plugin")
        return {r.name: r for r in _conform.ask(plugin, rows, topology, seconds)}

    return asked


def test_a_call_that_answers_as_it_should_works(ask):
    row = ask("PJRT_Client_AddressableDevices", TORCH_PJRT_FAKE_DEVICES="3")
    assert row["PJRT_Client_AddressableDevices"].verdict == "works"
    assert row["PJRT_Client_AddressableDevices"].words == "3 devices"


def test_devices_that_are_not_there_are_asked_by_their_name(ask):
    found = ask("PJRT_TopologyDescription_Create", "PJRT_Compile")
    assert [r.verdict for r in found.values()] == ["works", "works"]
    unnamed = ask("PJRT_Compile", topology="")["PJRT_Compile"]
    assert unnamed.verdict == "not tried"
    assert "--topology NAME" in unnamed.words


def test_what_the_plugin_says_it_has_not_is_missing(ask):
    row = ask("PJRT_Device_MemoryStats")["PJRT_Device_MemoryStats"]
    assert row.verdict == "missing"
    assert "UNIMPLEMENTED [12]: the fake plugin keeps no statistics" in row.words
    assert "memory_stats" in row.missed


def test_an_entry_that_is_not_in_the_table_is_missing(ask):
    found = ask("PJRT_Event_OnReady", "PJRT_Event_Await",
                TORCH_PJRT_FAKE_WITHOUT="PJRT_Event_OnReady")  # fmt: skip
    assert found["PJRT_Event_OnReady"].verdict == "missing"
    assert found["PJRT_Event_OnReady"].words == "the plugin's table has no such entry"
    assert found["PJRT_Event_Await"].verdict == "works"


def test_a_call_that_fails_is_wrong_and_what_needs_it_was_not_tried(ask):
    script = "PJRT_Client_PlatformName:1=INTERNAL no name"
    names = ("PJRT_Client_PlatformName", "PJRT_Buffer_Dimensions")
    found = ask(*names, TORCH_PJRT_FAKE_SCRIPT=script)
    assert found[names[0]].verdict == "wrong"
    assert found[names[1]].verdict == "not tried"
    assert all("PJRT_Client_PlatformName failed with INTERNAL [13]" in r.words
               for r in found.values())  # fmt: skip


def test_numbers_that_differ_are_wrong(ask):  # the fake plugin computes zeros
    names = ("PJRT_LoadedExecutable_Execute", "elementwise functions", "float32")
    found = ask(*names)
    assert [r.verdict for r in found.values()] == ["wrong"] * 3
    words = "twice the argument: expected 1 -2 4 6 8 -10, found 0 0 0 0 0 0"
    assert found[names[0]].words == words


def test_failures_without_an_error_are_wrong(ask):
    script = ";".join(f"PJRT_Executable_DeserializeAndLoad:{i}=INTERNAL junk" for i in (1, 2))
    name = "junk for a stored program is refused"
    assert ask(name, TORCH_PJRT_FAKE_SCRIPT=script)[name].verdict == "works"
    name = "an unknown compile option is refused"  # the fake plugin takes any
    row = ask(name)[name]
    assert (row.verdict, row.words) == ("wrong", "an unknown compile option is no error")


def test_a_plugin_that_crashes_is_a_row_and_the_next_is_asked(ask):
    names = ("PJRT_Buffer_ElementType", "PJRT_Buffer_IsOnCpu", "PJRT_Buffer_Dimensions")
    found = ask(*names, TORCH_PJRT_FAKE_SCRIPT="PJRT_Buffer_ElementType:1=CRASH")
    assert found["PJRT_Buffer_ElementType"].verdict == "crashes"
    assert found["PJRT_Buffer_ElementType"].words.startswith("SIGABRT")
    assert [found[n].verdict for n in names[1:]] == ["works", "works"]


def test_a_plugin_that_hangs_is_a_row_and_the_next_is_asked(ask):
    names = ("PJRT_Buffer_Delete", "PJRT_Buffer_Dimensions")
    script = "PJRT_Buffer_Delete:1=HANG 600000"
    found = ask(*names, seconds=5, TORCH_PJRT_FAKE_SCRIPT=script)
    assert found["PJRT_Buffer_Delete"].verdict == "hangs"
    assert found["PJRT_Buffer_Delete"].words == "no answer in 5 s"
    assert found["PJRT_Buffer_Dimensions"].verdict == "works"


def test_a_process_that_cannot_start_is_told(ask, fake):
    with pytest.raises(RuntimeError, match=r"(?s)ended before its first row.*TORCH_PJRT_DONATION"):
        ask("PJRT_Client_Create", TORCH_PJRT_DONATION="perhaps")


# ---- the command


def conform(run_python, *words: str, **env: str):
    return run_python("-m", "torch_pjrt", "conform", *words, own_start=True, **env)


def test_the_command_prints_verdicts_and_what_users_miss(run_python, fake):
    done = conform(run_python, "--plugin", f"FAKE:{fake}", "--only", "PJRT_Device_")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"plugin FAKE: {fake}  [--plugin]"
    assert any(re.match(r"  works     PJRT_Device_GetDescription$", x) for x in lines)
    at = next(i for i, x in enumerate(lines) if x.startswith("  missing   PJRT_Device_MemoryStats"))
    assert lines[at + 1].strip().startswith("missed: torch.xla.memory_stats()")
    assert lines[-1] == "2 works, 1 missing"


def test_the_command_fails_where_something_is_wrong_and_gives_json(run_python, fake):
    words = ("--plugin", f"FAKE:{fake}", "--only", "PJRT_LoadedExecutable", "--json")
    done = conform(run_python, *words)
    assert done.returncode == 1, done.stderr
    rows = {r["name"]: r for r in json.loads(done.stdout)}
    assert rows["PJRT_LoadedExecutable_Execute"]["verdict"] == "wrong"
    assert rows["PJRT_LoadedExecutable_Execute"]["required"]
    assert rows["PJRT_LoadedExecutable_AddressableDevices"]["verdict"] == "works"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--plugin", "NOSUCH"], "conform: no plugin is called 'NOSUCH'; known are CPU"),
        (["--plugin", "X:/no/such.so"], "conform: there is no file '/no/such.so'"),
        (["--only", "zzz"], "conform: no row has 'zzz' in its group or name"),
    ],
)
def test_wrong_words_are_told(run_python, words, message):
    done = conform(run_python, *words)
    assert done.returncode == 2
    assert done.stderr.startswith(message)


def test_a_library_that_is_no_plugin_is_told_in_every_row(ask, tmp_path):
    rows = [r for r in _conform.table() if r.name == "PJRT_Client_Create"]
    library = tmp_path / "no.so"
    library.write_bytes(b"not a library")
    row = _conform.ask(plugins.Plugin("NO", str(library), "--plugin"), rows)[0]
    assert row.verdict in ("wrong", "not tried")
    assert "cannot be loaded" in row.words


def test_a_page_has_a_row_for_what_is_not_well_somewhere():
    good = [_conform.Row("ops", "a", True, "all", "works"),
            _conform.Row("ops", "b", False, "some", "works")]  # fmt: skip
    bad = [good[0], replace(good[1], verdict="missing")]
    lines = _conform.markdown({"one": good, "two": bad}).splitlines()
    assert lines[0] == "| row | one | two | what users miss without it |"
    assert lines[2:] == ["| b |  | missing | some |"]


# ---- the CPU plugins


def names_of(rows, *verdicts: str) -> set[str]:
    return {r.name for r in rows if r.verdict in verdicts}


def test_the_default_cpu_plugin_does_all_that_is_required(monkeypatch):
    monkeypatch.setenv("TORCH_PJRT_CPU_DEVICES", "2")
    rows = _conform.ask(plugins.find_cpu(), _conform.table())
    assert not [(r.name, r.words) for r in rows if r.verdict in ("wrong", "crashes", "hangs")]
    assert not [(r.name, r.words) for r in rows if r.required and r.verdict != "works"]


@pytest.mark.nightly
def test_the_page_says_what_the_cpu_wheels_do(monkeypatch):
    monkeypatch.setenv("TORCH_PJRT_CPU_DEVICES", "2")
    columns = {}
    for wheel in plugins.CPU_WHEELS:
        monkeypatch.setenv("TORCH_PJRT_CPU_PLUGIN", wheel.distribution)
        columns[wheel.distribution] = _conform.ask(plugins.find_cpu(), _conform.table())
    assert _conform.markdown(columns) in (ROOT / "docs" / "plugins.md").read_text()
