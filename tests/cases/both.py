"""Programs as tests: run in lazy and in eager mode, and held against eager CPU PyTorch.

A program takes its device ("cpu" or "xla") and gives what it found: tensors, numbers, texts, nested
as it likes. A `sync` in it does nothing to tensors of the CPU.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from eager import assert_equal, tensors_in

import torch_pjrt

Program = Callable[[str], Any]
Test = Callable[[str], None]
sync = torch_pjrt.sync


def in_both_modes(check: Callable[[], None]) -> Test:
    """A test that runs in lazy and in eager mode."""

    def test(mode: str) -> None:
        with torch_pjrt.eager_mode(mode == "eager"):
            check()

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return pytest.mark.parametrize("mode", ["lazy", "eager"])(test)


def as_on_the_cpu(program: Program) -> Test:
    """A test: the program finds on the device what it finds on the CPU, in both modes."""

    def check() -> None:
        ours, eager = program("xla"), program("cpu")
        assert all(t.device.type == "xla" for t in tensors_in(ours))
        assert list(others_in(ours)) == list(others_in(eager))
        assert_equal(ours, eager)

    check.__name__, check.__doc__ = program.__name__, program.__doc__
    return in_both_modes(check)


def others_in(tree: Any) -> Iterator[Any]:
    """What a tree of results holds besides tensors, in order."""
    if isinstance(tree, list | tuple | dict):
        for v in tree.values() if isinstance(tree, dict) else tree:
            yield from others_in(v)
    elif not isinstance(tree, torch.Tensor):
        yield tree


def refused(call: Callable[[], Any]) -> str:
    """The kind of error that a call raises: there, not at a later sync."""
    with pytest.raises((RuntimeError, IndexError)) as caught:
        call()
    assert "Check failed" not in str(caught.value), "an error for the user, not of the program"
    return caught.type.__name__
