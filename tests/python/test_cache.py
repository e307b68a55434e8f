"""Compiled programs are kept across processes, found again, bounded, private, and never trusted
blindly. Each test has a folder of its own; each run of `program` is a new process."""

import json
import os
import re
import stat
from pathlib import Path

import pytest
from fake_plugin import fake_env

import torch_pjrt

PROGRAM = """
import json, os, torch, torch_pjrt
x = torch.arange(6.0).reshape(2, 3).to("xla")
def step():
    return (x.sin() @ x.t() + 1).tolist()
first = step()
m = torch_pjrt.metrics
print(json.dumps(dict(out=first, compiles=m.compiles(), counters=m.counters(),
                      stats=torch_pjrt.cache.stats().__dict__)))
"""


@pytest.fixture
def program(run_python, tmp_path):
    """Runs PROGRAM with the test's folder; gives what it printed and what it said."""

    def run(code: str = PROGRAM, **env: str) -> tuple[dict, str]:
        done = run_python(code=code, **({"TORCH_PJRT_CACHE": str(tmp_path / "cache")} | env))
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    return run


def programs(folder: Path) -> list[Path]:
    """The stored programs."""
    return sorted(folder.glob("*.program"))


def test_second_process_compiles_nothing_and_computes_the_same(program):
    # Started, not forked: with other addresses and another seed of Python's hashes.
    cold, _ = program(own_start=True)
    warm, said = program(own_start=True)
    assert (cold["compiles"], warm["compiles"]) == (1, 0)
    assert warm["out"] == cold["out"]
    assert said == ""


def test_same_graph_from_other_lines_is_found(program):
    program()
    moved, said = program(
        "\n\n\n" + PROGRAM.replace("def step", "def other").replace("= step", "= other")
    )
    assert (moved["compiles"], said) == (0, "")


def test_program_with_host_calls_is_loaded_and_runs(program):
    host = "torch.linalg.qr(x @ x.t()).R.abs().sort().values"
    code = PROGRAM.replace("x.sin() @ x.t() + 1", host)
    cold, _ = program(code)
    warm, _ = program(code)
    assert (cold["compiles"], warm["compiles"]) == (1, 0)
    assert warm["out"] == cold["out"]


def test_hits_and_misses_are_told(program, tmp_path):
    cold, _ = program()
    warm, _ = program()
    assert cold["stats"]["misses"] == warm["stats"]["hits"] == 1
    assert cold["stats"]["hits"] == warm["stats"]["misses"] == 0
    assert warm["stats"]["programs"] == 1
    assert warm["stats"]["path"] == str(tmp_path / "cache")
    assert warm["counters"]["CachedCompile"] == 1
    assert "UncachedCompile" not in warm["counters"]
    assert cold["counters"]["UncachedCompile"] == 1


def test_folder_and_files_are_private(program, tmp_path):
    program()
    folder = tmp_path / "cache"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "env",
    [
        {"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"},
        {"TORCH_PJRT_CPU_DEVICES": "2"},
    ],
    ids=["flags", "devices"],
)
def test_program_of_another_environment_is_not_used(program, env):
    program()
    other, _ = program(**env)
    assert other["compiles"] == 1


def test_plugin_is_known_by_its_bytes_not_by_its_path(program, tmp_path):
    library = torch_pjrt.plugins.find_cpu().library
    code = PROGRAM.replace(
        "import json, os, torch, torch_pjrt",
        "import json, os, torch, torch_pjrt\n"
        "cpu = torch_pjrt.plugins.find_cpu()\n"
        "torch_pjrt._C.register_plugin('CPU', os.environ['LIB'], cpu.options, cpu.compile_options,"
        " False, '')",
    )
    copied = tmp_path / "copy.so"
    copied.write_bytes(Path(library).read_bytes())
    program(code, LIB=library)
    same, _ = program(code, LIB=str(copied))
    assert same["compiles"] == 0
    with copied.open("ab") as f:
        f.write(b"\0")  # another build
    other, _ = program(code, LIB=str(copied))
    assert other["compiles"] == 1


def test_broken_file_is_discarded_compiled_again_and_said_once(program, tmp_path):
    program()
    (file,) = programs(tmp_path / "cache")
    good = file.read_bytes()
    for broken in (good[: len(good) // 2], b"", good[:-1] + bytes([good[-1] ^ 1])):
        file.write_bytes(broken)
        again, said = program()
        assert again["compiles"] == 1
        assert said.count("compiled again") == 1
        assert again["stats"]["corrupt"] == 1
        assert file.exists()
    assert program()[0]["compiles"] == 0


def test_read_only_mode_loads_and_stores_nothing(program, tmp_path):
    cold, _ = program(XLA_PERSISTENT_CACHE_READ_ONLY="1")
    assert cold["compiles"] == 1
    assert not (tmp_path / "cache").exists()
    program()
    warm, said = program(XLA_PERSISTENT_CACHE_READ_ONLY="1")
    assert (warm["compiles"], said) == (0, "")


def test_folder_that_cannot_be_written_costs_one_warning(program, tmp_path):
    (tmp_path / "file").write_text("")
    done, said = program(TORCH_PJRT_CACHE=str(tmp_path / "file" / "cache"))
    assert done["compiles"] == 1
    assert said.count("going on without") == 1


def test_full_disk_costs_one_warning_and_leaves_no_half_file(program, tmp_path):
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))\n" + PROGRAM
    code += "(x.cos() + 2).tolist()\n" + PROGRAM.strip().splitlines()[-2]
    code += "\n" + PROGRAM.strip().splitlines()[-1]
    done, said = program(code)
    assert done["compiles"] == 2
    assert said.count("going on without") == 1
    assert programs(tmp_path / "cache") == []
    assert list((tmp_path / "cache").glob("*.part")) == []


def test_off_means_nothing_is_kept(program, tmp_path):
    done, _ = program(TORCH_PJRT_CACHE="off", HOME=str(tmp_path), XDG_CACHE_HOME="")
    assert done["stats"]["path"] is None
    assert list(tmp_path.iterdir()) == []


def test_default_folder_is_in_the_users_cache_folder(program, tmp_path):
    at_home, _ = program(TORCH_PJRT_CACHE="", HOME=str(tmp_path), XDG_CACHE_HOME="")
    assert at_home["stats"]["path"] == str(tmp_path / ".cache" / "torch_pjrt")
    xdg, _ = program(TORCH_PJRT_CACHE="", XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert xdg["stats"]["path"] == str(tmp_path / "xdg" / "torch_pjrt")


def test_the_variable_that_users_know_names_the_folder(program, tmp_path):
    done, _ = program(TORCH_PJRT_CACHE="", XLA_PERSISTENT_CACHE_PATH=str(tmp_path / "known"))
    assert done["stats"]["path"] == str(tmp_path / "known")


def test_use_names_the_folder_from_python(program, tmp_path):
    code = PROGRAM.replace(
        "import json, os, torch, torch_pjrt",
        f"import json, os, torch, torch_pjrt; torch_pjrt.cache.use({str(tmp_path / 'mine')!r})",
    )
    program(code)
    assert len(programs(tmp_path / "mine")) == 1
    assert program(code)[0]["compiles"] == 0


def test_folder_stays_below_its_size(program, fake):
    code = (
        PROGRAM
        + """
for n in range(1, 8):
    y = torch.ones(n).to("xla")
    for _ in range(4000):
        y = y.sin()
    torch_pjrt.sync()
print(json.dumps(torch_pjrt.cache.stats().__dict__))
"""
    )
    whole = {"TORCH_PJRT_SPLIT_NODES": "0", "TORCH_PJRT_CUT_NODES": "0"}  # large programs
    done, _ = program(code, TORCH_PJRT_CACHE_MB="1", **whole, **fake_env(fake))
    everything, _ = program(code, **whole, **fake_env(fake))
    assert everything["bytes"] > 2**20, "the programs are too small for this test"
    assert 0 < done["bytes"] <= 2**20


# ---- the command ----------------------------------------------------------------------------


@pytest.fixture
def command(run_python, tmp_path):
    """Runs `python -m torch_pjrt cache ...` on the test's folder."""

    def run(*words: str):
        return run_python(
            "-m", "torch_pjrt", "cache", *words, TORCH_PJRT_CACHE=str(tmp_path / "cache")
        )

    return run


def test_ls_shows_each_program_and_the_sum(program, command, tmp_path):
    program()
    shown = command("ls").stdout.splitlines()
    (file,) = programs(tmp_path / "cache")
    assert shown[0].startswith(file.name[:12])
    assert re.search(r"\d+ nodes  compiled in \d+ ms  <string>:5 in step", shown[0])
    assert shown[-1].startswith("1 programs")


def test_verify_finds_what_is_broken_and_prune_removes_it(program, command, tmp_path):
    program()
    assert command("verify").returncode == 0
    (file,) = programs(tmp_path / "cache")
    file.write_bytes(file.read_bytes()[:-5])
    (tmp_path / "cache" / f"{file.name}.1-1.part").write_bytes(b"half")
    found = command("verify")
    assert found.returncode == 1
    assert file.name in found.stdout
    assert ".part" in found.stdout
    assert "removed 2 files" in command("prune").stdout
    assert command("verify").returncode == 0
    assert programs(tmp_path / "cache") == []


def test_prune_keeps_what_fits(program, command, tmp_path):
    program()
    assert "removed 0 files" in command("prune").stdout
    assert "removed 1 files" in command("prune", "--max-mb", "0").stdout
    assert programs(tmp_path / "cache") == []


def test_clear_leaves_nothing_of_ours_and_all_of_others(program, command, tmp_path):
    program()
    (tmp_path / "cache" / "notes.txt").write_text("mine")
    assert command("clear").returncode == 0
    assert [p.name for p in (tmp_path / "cache").iterdir()] == ["notes.txt"]
    assert program()[0]["compiles"] == 1


# ---- many processes -------------------------------------------------------------------------

RACE = """
import json, os, torch, torch_pjrt
read, write = os.pipe()
n = int(os.environ["N"])
for i in range(n):
    if os.fork() == 0:
        status = 1
        try:
            os.close(write); os.read(read, 1)  # all start when the parent lets go
            x = torch.arange(6.0).to("xla")
            right = (x * 2 + 1).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0, 11.0]
            status = 0 if right and (x.sin() + 1).cpu().allclose(x.cpu().sin() + 1) else 2
        finally:
            os._exit(status)
os.close(write)
print(json.dumps([os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(n)]))
"""


def test_processes_that_start_at_once_on_an_empty_folder_are_all_right(program, command, tmp_path):
    statuses, said = program(RACE, N=os.environ.get("TORCH_PJRT_TEST_PROCESSES", "6"))
    assert set(statuses) == {0}
    assert said == ""
    names = [p.name for p in programs(tmp_path / "cache")]
    assert len(names) == 2, "one file for each of the two programs"
    assert list((tmp_path / "cache").glob("*.part")) == []
    assert command("verify").returncode == 0


def test_processes_killed_while_they_store_leave_nothing_broken(run_python, fake, tmp_path):
    script = Path(__file__).with_name("kill_cache.py")
    done = run_python(
        str(script),
        os.environ.get("TORCH_PJRT_TEST_KILLS", "10"),
        TORCH_PJRT_CACHE=str(tmp_path / "cache"),
        TORCH_PJRT_PLUGIN=f"FAKE:{fake}",
        PJRT_DEVICE="FAKE",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    whole = int(re.search(r"(\d+) whole programs", done.stdout).group(1))
    assert whole > 0, "nothing was stored, so that this shows nothing"
