"""The process that asks a plugin: `python -m torch_pjrt._conform_child ORDER ANSWERS`.

ORDER is a file of JSON: the setting and the names of rows, in order. Each row appends a line to
ANSWERS when it begins and one when it has its answer, so that whoever started the process knows
which row ended it. A row that takes too long ends it, too: from a thread of C that needs no lock of
Python's.
"""

import faulthandler
import json
import sys
from typing import Any, TextIO

from . import _C, _conform_ops, plugins

__all__: list[str] = []


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return " ".join(text.split())


def _answer(probe: _conform_ops.Probe) -> tuple[str, str]:
    """(verdict, words) of a row of _conform_ops."""
    try:
        return "works", probe.run()
    except NotImplementedError as error:
        return "missing", _first_line(error)
    except AssertionError as error:
        return "wrong", _first_line(error)
    except Exception as error:  # whatever the plugin made of it is the answer
        return "wrong", f"{type(error).__name__}: {_first_line(error)}"


def _ask(name: str, setting: dict[str, Any]) -> tuple[str, str]:
    ops = (*_conform_ops.DTYPES, *_conform_ops.FAMILIES, *_conform_ops.PRODUCT)
    probe = next((p for p in ops if p.name == name), None)
    if probe:
        return _answer(probe)
    verdict, words = _C.conform_ask(name, *setting["plugin"].values())
    return verdict, " ".join(words.split())


def _write(to: TextIO, **line: str) -> None:
    to.write(json.dumps(line) + "\n")
    to.flush()


def main(order: str, answers: str) -> None:
    """Asks row after row."""
    with open(order) as file:
        setting = json.load(file)
    plugins.register()
    with open(answers, "a") as to:
        for name in setting["rows"]:
            _write(to, begins=name)
            faulthandler.dump_traceback_later(setting["seconds"], exit=True)
            verdict, words = _ask(name, setting)
            faulthandler.cancel_dump_traceback_later()
            _write(to, name=name, verdict=verdict, words=words)


if __name__ == "__main__":
    main(*sys.argv[1:])
