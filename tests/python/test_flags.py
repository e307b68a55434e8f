"""The flag table."""

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
    done = run_python("-m", "torch_pjrt", "flags", XLA_COMPILATION_CACHE_SIZE="77")
    assert done.returncode == 0, done.stderr
    for f in flags.table():
        assert f.name in done.stdout
    line = next(x for x in done.stdout.splitlines() if x.startswith("XLA_COMPILATION_CACHE_SIZE"))
    assert line.split()[2] == "77"
    assert "default 2048" in line
