"""Numbers that change: eight values of an argument compile two programs at most.

sweep.toml lists the arguments that compile more, each with its reason.
"""

import string
import tomllib
from pathlib import Path

import pytest
import sweep
import torch
from sweep import Call, Swept

from torch_pjrt import _C

MOST = 2
LISTED: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("sweep.toml").read_text()
)


def listed(section: str) -> set[str]:
    """The names in the values of a section whose keys are reasons."""
    return {name for names in LISTED[section].values() for name in names.split()}


def initial(name: str) -> str:
    return name.lstrip("_")[0]


@pytest.fixture(scope="module")
def calls() -> dict[str, list[Call]]:
    return sweep.recorded()


def swept(calls: dict[str, list[Call]], letter: str) -> dict[str, Swept]:
    """ "op:argument" -> what its values came to."""
    found = {}
    for name in calls:
        if initial(name) == letter:
            for argument, s in sweep.sweep_op(calls[name]).items():
                found[f"{name}:{argument}"] = s
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("letter", string.ascii_lowercase)
def test_eight_values_of_a_number_compile_two_programs_and_have_eagers_results(calls, letter):
    found = swept(calls, letter)
    wrong = {k: s.wrong for k, s in found.items() if s.wrong}
    assert {k: v for k, v in wrong.items() if k not in listed("values")} == {}
    many = {k: s.programs for k, s in found.items() if s.programs > MOST}
    assert {k: n for k, n in many.items() if k not in listed("programs")} == {}
    mine = {k for k in listed("programs") | listed("values") if initial(k) == letter}
    assert mine - set(many) - set(wrong) == set(), "passes now: take it out of sweep.toml"


DAILY = """embedding embedding_dense_backward kthvalue linalg_vector_norm nan_to_num
native_layer_norm nll_loss_forward roll round.decimals smooth_l1_loss tril _fused_adamw_"""


@pytest.mark.parametrize("name", DAILY.split())
def test_eight_values_of_a_usual_number_compile_two_programs(usual, name):
    found = {f"{name}:{a}": s for a, s in sweep.sweep_op(usual[name]).items()}
    assert {a: s.wrong for a, s in found.items() if s.wrong} == {}
    counts = {a: s.programs for a, s in found.items() if s.why == "swept"}
    assert counts
    assert {a: n for a, n in counts.items() if n > MOST and a not in listed("programs")} == {}


@pytest.fixture(scope="module")
def usual() -> dict[str, list[Call]]:
    """Calls of the samples that reach those ops."""
    names = """nn.functional.embedding kthvalue linalg.vector_norm
    nan_to_num nn.functional.layer_norm nn.functional.nll_loss roll round.decimals_3
    nn.functional.smooth_l1_loss tril"""
    return sweep.recorded([sweep.OPS[n] for n in names.split()])


def rows_with_numbers() -> dict[str, str]:
    """Rows of the op table that take numbers -> their op without overload."""
    names = [n for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::")]
    rows = set(names) - set(_C.unknown_names(1, names))
    found = {}
    for name in rows:
        base, _, overload = name.removeprefix("aten::").partition(".")
        schema = getattr(getattr(torch.ops.aten, base), overload or "default")._schema
        if sweep.has_numbers(schema):
            found[name.removeprefix("aten::")] = base
    return found


@pytest.mark.nightly
def test_each_row_that_takes_numbers_is_tried(calls):
    tried = {name.split(".")[0] for name in calls}
    unseen = {
        name
        for name, base in rows_with_numbers().items()
        if name not in calls and base + "_" not in tried
    }
    assert unseen == listed("unseen")
