"""docs/api.md is that of the docstrings, which say what a caller has to know."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import api_page

import torch_pjrt

NAMES = [(heading, n) for heading, file in api_page.MODULES.items() for n in api_page.names(file)]
FUNCTIONS = [
    (f"{heading}.{n.name}", n.node) for heading, n in NAMES if isinstance(n.node, ast.FunctionDef)
]
CLASSES = [
    (f"{heading}.{n.name}", n.node) for heading, n in NAMES if isinstance(n.node, ast.ClassDef)
]
METHODS = [(f"{name}.{m.name}", m) for name, node in CLASSES for m in api_page.members(node)]
CALLED = FUNCTIONS + METHODS


def each(found):
    return pytest.mark.parametrize("node", [n for _, n in found], ids=[name for name, _ in found])


def test_the_page_is_that_of_the_docstrings():
    assert api_page.PAGE.read_text() == api_page.page(), "run `make api`"


def test_every_public_module_is_on_the_page_or_says_why_not():
    files = {p.stem for p in api_page.PACKAGE.glob("*.py") if not p.stem.startswith("_")}
    assert files - set(api_page.MODULES.values()) == set(api_page.NOT_LISTED)


def test_every_public_name_is_on_the_page():
    text = api_page.page()
    named = {n.name for _, n in NAMES}
    plain = {"__version__", *api_page.MODULES.values()}  # a version; modules have their sections
    assert set(torch_pjrt.__all__) <= named | plain
    assert [n for n in named if f"### `{n}" not in text] == []


@each(CALLED + CLASSES)
def test_a_public_name_has_a_docstring(node):
    assert len(ast.get_docstring(node) or "") > 10


@each([(name, f) for name, f in CALLED if f.returns and "torch.Tensor" in ast.unparse(f.returns)])
def test_a_tensor_that_comes_back_has_a_shape_or_dtype_in_words(node):
    assert re.search(r"shape|dtype|dimension|bytes|\[\]", ast.get_docstring(node))


def raised(node: ast.FunctionDef) -> set[str]:
    """Exceptions that a function itself raises."""
    inner = [f for f in ast.walk(node) if isinstance(f, ast.FunctionDef) and f is not node]
    apart = {id(r) for f in inner for r in ast.walk(f)}
    found = [r for r in ast.walk(node) if isinstance(r, ast.Raise) and id(r) not in apart]
    calls = [r.exc.func for r in found if isinstance(r.exc, ast.Call)]
    return {ast.unparse(c) for c in calls}


@each([(name, f) for name, f in CALLED if raised(f)])
def test_an_error_that_a_function_raises_is_in_its_docstring(node):
    doc = ast.get_docstring(node)
    assert [e for e in raised(node) if e.rpartition(".")[2] not in doc] == []
