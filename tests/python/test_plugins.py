"""Finding plugins, and what people read when there is none."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

from torch_pjrt import _C, plugins


def test_the_cpu_wheel_is_found():
    p = plugins.find_cpu()
    assert p.name == "CPU"
    assert p.library.endswith(".so")
    assert p.options == {"cpu_device_count": 1}
    assert p.compile_options["xla_cpu_enable_fast_min_max"] is False
    assert "CPU" in _C.registered()


def test_the_first_installed_wheel_wins(monkeypatch):
    _, second, third = plugins.CPU_WHEELS
    there = {second.library: ("/x/b.so", second.version), third.library: ("/x/c.so", "99.9")}
    monkeypatch.setattr(plugins, "find_wheel", lambda w: there.get(w.library))
    p = plugins.find_cpu()
    assert (p.source, p.library) == (f"wheel {second.distribution}", "/x/b.so")
    assert p.mistakes == second.mistakes
    assert p.compile_options.items() >= second.options.items()


def test_convolutions_are_not_left_to_a_library_that_is_slow_at_their_gradients():
    for wheel in plugins.CPU_WHEELS:
        assert "CONVOLUTION" not in str(wheel.options)
        assert ("xla_cpu_experimental_ynn_fusion_type" in wheel.options) == (
            wheel.distribution != "xla-cpu-pjrt"  # which has no such library
        )


def test_the_build_tests_the_core_on_the_plugin_that_programs_use(run_python, monkeypatch):
    monkeypatch.delenv("TORCH_PJRT_CPU_PLUGIN", raising=False)
    done = run_python("cmake/python_env.py")
    assert f"CPU_PLUGIN={plugins.find_cpu().library}" in done.stdout.splitlines(), done.stderr


def test_a_variable_picks_the_cpu_wheel(monkeypatch):
    monkeypatch.setattr(plugins, "find_wheel", lambda w: (f"/x/{w.library}", w.version))
    monkeypatch.setenv("TORCH_PJRT_CPU_PLUGIN", "fastatomstruct-xla-cpu")
    monkeypatch.setenv("TORCH_PJRT_CPU_DEVICES", "4")
    p = plugins.find_cpu()
    assert p.library == "/x/libpjrt_cpu.so"
    assert p.options == {"cpu_device_count": 4}


@pytest.mark.parametrize(
    ("asked", "advice"),
    [
        ("typo", f"no known CPU plugin wheel; known are {plugins.CPU_WHEELS[0].distribution}"),
        ("fastatomstruct-xla-cpu", "pip install --no-deps fastatomstruct-xla-cpu=="),
        ("", f"pip install --no-deps {plugins.CPU_WHEELS[0].distribution}=="),
    ],
)
def test_a_missing_cpu_wheel_says_what_to_install(monkeypatch, asked, advice):
    monkeypatch.setattr(plugins, "find_wheel", lambda _: None)
    monkeypatch.setenv("TORCH_PJRT_CPU_PLUGIN", asked)
    p = plugins.find_cpu()
    assert p.library == ""
    assert advice in p.how_to_install


@pytest.mark.parametrize(
    ("entry", "device"), [("xla_cuda13", "CUDA"), ("xla_rocm7", "ROCM"), ("metal", "METAL")]
)
def test_jax_plugins_have_short_device_names(entry, device):
    found = importlib.metadata.EntryPoint(entry, "x", "jax_plugins")
    assert plugins._device_name(found) == device


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    """Three installed packages: a torch_xla plugin, a JAX plugin, and a broken one."""
    info = tmp_path / "strangers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[torch_xla.plugins]\nstrange = strange_plugin:Plugin\nbroken = no_such_module:Plugin\n"
        "[jax_plugins]\nxla_odd9 = strange_jax.xla_odd9\n"
    )
    (tmp_path / "strange_plugin.py").write_text(
        "class Plugin:\n"
        "    def library_path(self): return '/opt/strange.so'\n"
        "    def client_create_options(self): return {'cores': 2}\n"
        "    def requires_xla_coordinator(self): return True\n"
    )
    jax = tmp_path / "strange_jax" / "xla_odd9"
    jax.mkdir(parents=True)
    (jax / "__init__.py").write_text("raise RuntimeError('wants jax')\n")
    (jax / "helper.so").write_bytes(b"nothing here")
    (jax / "plugin.so").write_bytes(b"... GetPjrtApi ...")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("strange_plugin", "strange_jax"):
        sys.modules.pop(name, None)


def test_entry_points_are_asked_the_three_questions(strangers):
    problems: list[str] = []
    found = {p.name: p for p in plugins.find_entry_points(problems)}
    strange = found["STRANGE"]
    assert (strange.library, strange.options, strange.wants_kv) == (
        "/opt/strange.so",
        {"cores": 2},
        True,
    )
    assert len(problems) == 1
    assert (
        "strangers is installed, but no_such_module:Plugin fails: ModuleNotFoundError: "
        in (problems[0])
    )


def test_a_jax_plugin_is_found_without_importing_it(strangers):
    found = {p.name: p for p in plugins.find_entry_points()}
    assert found["ODD"].library == str(strangers / "strange_jax" / "xla_odd9" / "plugin.so")


USE = """
import torch, torch_pjrt
for _ in range(2):
    try:
        torch.ones(2, device="xla").cpu()
    except Exception as e:
        print(type(e).__name__, e)
print("usable", torch.ones(2).sum().item())
"""


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"PJRT_DEVICE": "CPUU"}, ["PJRT_DEVICE=CPUU", "registered: CPU"]),
        (
            {"PJRT_DEVICE": "NEW", "TORCH_PJRT_PLUGIN": "NEW:/no/such/file.so"},
            ["/no/such/file.so"],
        ),
        ({"TORCH_PJRT_CPU_PLUGIN": "typo"}, [f"known are {plugins.CPU_WHEELS[0].distribution}"]),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_a_bad_setting_gives_one_clear_message_and_leaves_the_process_usable(
    run_python, env, words
):
    done = run_python(code=USE, **env)
    assert "usable 2.0" in done.stdout, done.stderr
    for word in words:
        assert done.stdout.count(word) >= 2, done.stdout  # told each time, not only once
    assert "Error" in done.stdout.split()[0]
    assert "frame #" not in done.stdout  # no C++ stack


# ---- packages that fail ---------------------------------------------------------------------

FAILS = {
    "import": (
        "import no_such_thing_at_all",
        "ModuleNotFoundError: No module named 'no_such_thing",
    ),
    "raise": ("raise OSError('libchip.so.1: cannot open')", "OSError: libchip.so.1: cannot open"),
    "syntax": ("def (:", "SyntaxError: "),
    "exit": ("import sys; sys.exit(3)", "it called sys.exit(3)"),
    "exit in the class": (
        "class Plugin:\n    def library_path(self): raise SystemExit('no licence')",
        "it called sys.exit('no licence')",
    ),
    "no class": ("x = 1", "AttributeError: "),
    "options": (
        "class Plugin:\n    def client_create_options(self): return 7",
        "client_create_options() must give a dict",
    ),
}


@pytest.fixture(params=FAILS)
def failing(request, tmp_path) -> tuple[Path, str]:
    """A folder with an installed plugin package whose code fails, and what it says."""
    code, words = FAILS[request.param]
    info = tmp_path / "chip_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chip-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch_pjrt.plugins]\nchip = chip_plugin:Plugin\n")
    (tmp_path / "chip_plugin.py").write_text(code + "\n")
    return tmp_path, words


@pytest.mark.parametrize("when", ["before the import", "after the import"])
def test_pjrt_device_of_a_package_that_fails_says_what_it_said(run_python, failing, when):
    folder, words = failing
    late = 'import os; os.environ["PJRT_DEVICE"] = "CHIP"\n' if when == "after the import" else ""
    env = {"PYTHONPATH": str(folder)} | ({} if late else {"PJRT_DEVICE": "CHIP"})
    done = run_python(code=USE.replace("for _", f"{late}for _", 1), **env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("PJRT_DEVICE=CHIP: package chip-plugin is installed, but") == 2
    assert done.stdout.count(words) == 2, done.stdout
    assert "usable 2.0" in done.stdout
    assert "no such device" not in done.stdout


def test_doctor_outlives_a_package_that_fails(run_python, failing):
    folder, words = failing
    done = run_python("-m", "torch_pjrt", "doctor", PYTHONPATH=str(folder), PJRT_DEVICE="CHIP")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "! torch_pjrt.plugins: chip: package chip-plugin is installed, but" in done.stdout
    assert words in done.stdout
    assert "chip-plugin again" in done.stdout
    assert "unset PJRT_DEVICE" in done.stdout


def test_a_jax_plugin_without_a_library_says_so(run_python, strangers):
    (strangers / "strange_jax" / "xla_odd9" / "plugin.so").unlink()
    done = run_python(code=USE, PYTHONPATH=str(strangers), PJRT_DEVICE="ODD")
    assert "no shared library that names GetPjrtApi is in" in done.stdout, done.stdout


def test_of_two_packages_for_one_device_the_one_that_works_wins(monkeypatch):
    broken = plugins.Plugin("CHIP", "", "first", problem="fails")
    works = plugins.Plugin("CHIP", "/x.so", "second")
    monkeypatch.setattr(plugins, "find_entry_points", lambda _: [broken, works])
    assert [p.source for p in plugins.find() if p.name == "CHIP"] == ["second"]
