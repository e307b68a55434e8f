"""Runs at the start of a process of tools/peer.py: writes each unittest result to $PEER_RESULTS."""

import functools
import json
import os
import sys
import unittest

_FILE = os.environ.get("PEER_RESULTS", "")
_PID = os.environ.setdefault("PEER_PID", str(os.getpid()))


def _name(test) -> str:
    name = test.id().removeprefix("__main__.")
    return name.removeprefix(f"{os.environ.get('PEER_MODULE', '__main__')}.")


def _write(outcome: str, test, detail: str = "") -> None:
    with open(_FILE, "a") as f:
        f.write(json.dumps([outcome, _name(test), detail]) + "\n")


def _tell(result: type, method: str, outcome: str) -> None:
    before = getattr(result, method)

    @functools.wraps(before)
    def told(self, test, *rest):
        detail = ""
        if outcome in ("fail", "error"):
            detail = f"{rest[0][0].__name__}: {rest[0][1]}"[-2000:]
        _write(outcome, test, detail)
        return before(self, test, *rest)

    setattr(result, method, told)


def _tell_subtests(result: type) -> None:
    before = result.addSubTest

    @functools.wraps(before)
    def told(self, test, subtest, err):
        if err is not None:
            _write("fail", test, f"{subtest}: {err[0].__name__}: {err[1]}"[-2000:])
        return before(self, test, subtest, err)

    result.addSubTest = told


if _FILE and str(os.getpid()) == _PID:
    for _method, _outcome in (
        ("startTest", "start"),
        ("addSuccess", "pass"),
        ("addFailure", "fail"),
        ("addError", "error"),
        ("addSkip", "skip"),
        ("addExpectedFailure", "pass"),
        ("addUnexpectedSuccess", "fail"),
    ):
        _tell(unittest.TestResult, _method, _outcome)
    _tell_subtests(unittest.TestResult)


class _Torchvision:
    """Before torchvision is imported: its C++ may not fit this torch, its models do without."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torchvision":
            import torch

            if not hasattr(torch.ops.torchvision, "nms"):
                library = torch.library.Library("torchvision", "DEF")
                for op in ("nms", "qnms"):
                    library.define(
                        f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                    )
                sys.modules["_peer_torchvision"] = library


if _FILE:
    sys.meta_path.insert(0, _Torchvision)
