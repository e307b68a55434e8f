"""Finding plugins, and what people read when there is none."""

import sys

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
    assert plugins._device_name(entry) == device


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
    assert "broken: ModuleNotFoundError" in problems[0]


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
        ({"TORCH_PJRT_CPU_DEVICES": "many"}, ["TORCH_PJRT_CPU_DEVICES", "whole number", "'many'"]),
        ({"TORCH_PJRT_PLUGIN": "nonsense"}, ["expected NAME:PATH"]),
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
