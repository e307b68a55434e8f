"""`python -m torch_pjrt doctor`."""

import torch

import torch_pjrt
from torch_pjrt import doctor, plugins


def test_the_report_names_versions_plugin_and_devices():
    works, text = doctor.report()
    assert works
    assert torch.__version__ in text
    assert plugins.find_cpu().source in text
    assert "xla:0" in text


def test_it_says_when_lines_cost_more_since_pythons_frames_are_unknown():
    _, text = doctor.report()
    assert "frames" not in text
    torch_pjrt._C.set_frames_direct(False)
    try:
        _, text = doctor.report()
    finally:
        torch_pjrt._C.set_frames_direct(True)
    assert "its frames are unknown: lines are asked of Python's API, which is slower" in text


WITHOUT_WHEELS = """
from torch_pjrt import doctor, plugins
plugins.find_wheel = lambda wheel: None
raise SystemExit(doctor.run())
"""


def test_it_says_what_to_install_where_the_plugin_is_missing(run_python):
    done = run_python(code=WITHOUT_WHEELS, TORCH_PJRT_CPU_PLUGIN="lammps-jax-pjrt-cpu")
    assert done.returncode == 1
    assert "CPU: pip install --no-deps lammps-jax-pjrt-cpu==" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr


def test_it_says_how_to_go_on_where_the_device_is_unknown(run_python):
    done = run_python("-m", "torch_pjrt", "doctor", PJRT_DEVICE="NOSUCH")
    assert done.returncode == 1
    assert "NOSUCH" in done.stdout, done.stderr
    assert "unset PJRT_DEVICE" in done.stdout
