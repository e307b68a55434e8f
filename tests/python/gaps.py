"""The list of known gaps (known_gaps.toml) as tests use it: a gap must fail, and says why."""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

GAPS: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parent / "known_gaps.toml").read_text()
)


def reason(section: str, case: str) -> str | None:
    """Why a case is known to fail; None where it is not."""
    return GAPS.get(section, {}).get(case)


def cases(section: str) -> set[str]:
    """The cases of a section: a test checks that it has them all."""
    return set(GAPS.get(section, {}))


def listed(section: str) -> set[str]:
    """The names in the values of a section whose keys are reasons."""
    return {name for names in GAPS.get(section, {}).values() for name in names.split()}


@contextmanager
def expected(section: str, case: str) -> Iterator[None]:
    """The body must pass, or, where the case is a known gap, must fail."""
    why = reason(section, case)
    try:
        yield
    except Exception:
        if why is None:
            raise
        pytest.xfail(why)
    if why is not None:
        pytest.fail(f"passes now: take '{case}' out of [{section}] in known_gaps.toml")
