"""Random programs agree with eager: a sample here, more by `make fuzz N=10000`; found ones stay."""

import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[1] / "fuzz"
sys.path.insert(0, str(FUZZ))

from maker import fails, make, reduced
from programs import check_text, source

FOUND = sorted((FUZZ / "found").glob("*.txt"))
SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_agree_with_eager(seed):
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from hypothesis import strategies as st

    @seeded(seed)
    @settings(
        max_examples=10, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def one(data):
        m = make(data.draw)
        why = fails(m)
        if why:
            small = reduced(m)
            pytest.fail(f"{why}\n{source(small.statements, small.run)}")

    one()


@pytest.mark.parametrize("file", FOUND, ids=lambda f: f.stem)
def test_what_was_found_once_stays_right(file):
    check_text(file.read_text())


def test_a_wrong_answer_is_found():
    with pytest.raises(AssertionError, match="ours"):
        check_text('t0 = torch.ones(2, device=dev)\nt1 = t0 + (1 if dev == "xla" else 2)')


def test_a_missing_error_is_found():
    with pytest.raises(AssertionError, match="ours None"):
        check_text('t0 = torch.ones(2, device=dev).view(3 if dev == "cpu" else 2)')
