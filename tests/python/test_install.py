"""Which builds of the extension an installation has, and what a bad one is told (no wheel is made
here: tests/python/test_wheel.py installs one)."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_pjrt
from torch_pjrt import _build_info, _extension

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import torch_requirement

BUILDS = {"2.9.1": "_C_2_9_1", "2.13.0": "_C_2_13_0", "2.14.1": "_C_2_14_1"}


# ---- which build ----------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["2.13.0", "2.13.0+cpu", "2.13.0+cu130"])
def test_the_build_of_the_torch_found_is_taken_whatever_its_platform(found):
    assert _extension.choose(found, BUILDS) == "_C_2_13_0"


@pytest.mark.parametrize("found", ["2.12.1", "2.14.0", "2.14.10", "2.15.0a0+git12ab", "3.0"])
def test_another_torch_is_refused_in_one_line_that_says_what_to_install(found):
    with pytest.raises(ImportError) as e:
        _extension.choose(found, BUILDS)
    message = str(e.value)
    assert f"built for torch 2.9.1 and 2.13.0 and 2.14.1 but torch {found} is inst" in message
    assert "`pip install torch==2.14.1`" in message
    assert "\n" not in message


def test_the_installed_build_is_that_of_this_torch():
    stem = _build_info.BUILDS[_extension.release(torch.__version__)]
    assert Path(torch_pjrt._C.__file__).name.partition(".")[0] == stem
    assert _extension.release(torch_pjrt._C.torch_version) == _extension.release(torch.__version__)
    assert torch_pjrt._C.__name__ == "torch_pjrt._C"


# ---- bad installations ----------------------------------------------------------------------

REFUSED = """
import sys
try:
    import torch_pjrt
except ImportError as e:
    print(e)
print("torch_pjrt._C" in sys.modules)
"""


def package(folder: Path, name: str, source: str) -> str:
    """A folder for PYTHONPATH with a package of that name."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source)
    return f"{folder}:{ROOT}"


def test_a_wrong_torch_is_refused_before_the_extension_is_loaded(tmp_path, run_python):
    path = package(tmp_path, "torch", '__version__ = "2.12.0"\n')
    done = run_python(code=REFUSED, own_start=True, PYTHONPATH=path)
    message, loaded = done.stdout.splitlines()
    assert "but torch 2.12.0 is installed. Run `pip install torch==" in message, done.stderr
    assert (loaded, done.stderr) == ("False", "")


def test_a_missing_torch_is_named(tmp_path, run_python):
    source = "raise ModuleNotFoundError('No module named torch', name='torch')\n"
    path = package(tmp_path, "torch", source)
    done = run_python(code=REFUSED, own_start=True, PYTHONPATH=path)
    install = f"pip install torch=={_extension.newest()}"
    assert done.stdout.startswith(f"torch_pjrt needs PyTorch: {install}\n"), done.stderr


def test_a_torch_that_does_not_load_speaks_for_itself(tmp_path, run_python):
    path = package(tmp_path, "torch", "import nothing_such\n")
    done = run_python(code=REFUSED, own_start=True, PYTHONPATH=path)
    assert done.stdout.startswith("No module named 'nothing_such'\n"), done.stderr


def test_the_newest_build_is_by_number_not_by_letter(monkeypatch):
    monkeypatch.setattr(_extension, "builds", lambda: BUILDS)
    assert _extension.newest() == "2.14.1"


def test_a_source_tree_without_a_build_says_how_to_build(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_pjrt._build_info", None)
    monkeypatch.delattr(torch_pjrt, "_build_info")
    with pytest.raises(ImportError, match=r"torch_pjrt is not built: .* run `make`"):
        _extension.builds()


def test_a_build_whose_file_is_gone_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch_pjrt._C")
    monkeypatch.setattr(_extension, "builds", lambda: {"9.9.9": "_C_gone"})
    with pytest.raises(ImportError, match=r"torch_pjrt/_C_gone\..*so is missing"):
        _extension.load("9.9.9")


def test_a_python_that_is_not_on_the_machine_is_one_line_and_no_failure():
    command = [str(ROOT / "tools/other_python.sh"), "3.99", "2.14.1", "tests"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    line = (
        "python-3.99: Python 3.99 is not on this machine; its wheel was neither made nor tested\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, line, "")


def real_torch_xla(folder: Path) -> str:
    """A folder for PYTHONPATH that holds a distribution such as PyTorch/XLA's."""
    info = folder / "torch_xla-2.9.0.dist-info"
    info.mkdir()
    text = (
        "Metadata-Version: 2.1\nName: torch-xla\nVersion: 2.9.0\nSummary: XLA bridge for PyTorch\n"
    )
    (info / "METADATA").write_text(text)
    return package(folder, "torch_xla", "import sys, types\nsys.modules['_XLAC'] = types\n")


def test_beside_a_real_torch_xla_one_warning_says_what_to_uninstall(tmp_path, run_python):
    code = "import torch_pjrt, torch; print(torch.ones(2, device='xla').sum().item())"
    done = run_python(code=code, own_start=True, PYTHONPATH=real_torch_xla(tmp_path))
    assert done.stdout == "2.0\n", done.stderr
    assert done.stderr.count("torch_xla 2.9.0 is installed beside torch_pjrt") == 1
    assert "Run `pip uninstall torch_xla`" in done.stderr


def test_a_real_torch_xla_that_is_loaded_is_refused_in_one_line(tmp_path, run_python):
    path = real_torch_xla(tmp_path)
    done = run_python(code="import torch_xla" + REFUSED, own_start=True, PYTHONPATH=path)
    message, loaded = done.stdout.splitlines()
    assert message.startswith("torch_xla 2.9.0 is loaded, and torch_pjrt provides the device xla")
    assert "Run `pip uninstall torch_xla`" in message
    assert loaded == "False"


# ---- what a wheel asks for ------------------------------------------------------------------

KNOWN = [f"2.{minor}.{patch}" for minor in range(9, 17) for patch in range(3)]


@pytest.mark.parametrize(
    "built",
    [["2.13.0"], ["2.13.0", "2.14.1"], ["2.14.1", "2.15.0", "2.13.0"], ["2.9.1", "2.13.0"]],
    ids=" ".join,
)
def test_a_wheel_admits_the_releases_that_it_is_built_for_and_no_other(built):
    specifiers = pytest.importorskip("packaging.specifiers")
    text = torch_requirement.requirement(built).removeprefix("torch")
    admits = specifiers.SpecifierSet(text)
    assert [v for v in KNOWN if v in admits] == sorted(built, key=KNOWN.index)
    assert built[0] + "+cpu" in admits


def test_a_build_asks_for_the_torch_of_its_own_python(monkeypatch):
    monkeypatch.delenv("TORCH_PJRT_TORCHES", raising=False)
    found = torch_requirement.dynamic_metadata({"beside": ["numpy"]}, {})
    assert found == {"dependencies": [f"torch=={_extension.release(torch.__version__)}", "numpy"]}
