"""`python -m torch_pjrt conform`: what a plugin does, row by row, and what users will miss.

For authors of plugins. Rows are asked in processes that may be lost: one that crashes or hangs is
an answer, and the next process goes on behind it.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from . import _C, _conform_ops, _topologies, plugins

__all__ = ["Row", "add_arguments", "ask", "run", "table"]

SECONDS = 120  # that a row may take
_VERDICTS = ("works", "missing", "wrong", "crashes", "hangs", "not tried")
_BAD = ("wrong", "crashes", "hangs")
# Which topology to name, where nobody says one.
_TOPOLOGIES = {"TPU": "v5e:2x2", "CUDA": "h100:1"}


@dataclass(frozen=True)
class Row:
    """A question and its answer. `missed` is what users miss where it does not work."""

    group: str
    name: str
    required: bool
    missed: str
    verdict: str = ""
    words: str = ""

    @property
    def works(self) -> bool:
        """Whether users miss nothing."""
        return self.verdict in ("works", "not tried")


def table() -> list[Row]:
    """All rows, without answers, in their order."""
    calls = [Row("C API", *r) for r in _C.conform_calls()]
    behaviours = [Row("behaviour", *r) for r in _C.conform_behaviours()]
    made = {
        "dtypes": _conform_ops.DTYPES,
        "ops": _conform_ops.FAMILIES,
        "product": _conform_ops.PRODUCT,
    }
    ops = [Row(g, p.name, p.required, p.missed) for g, all_ in made.items() for p in all_]
    return [*calls, *behaviours, *ops]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The words after `conform`."""
    parser.add_argument(
        "--plugin", help="NAME:/path/to/plugin.so, or the name of one that is known"
    )
    parser.add_argument("--topology", help="devices that are not there, in the plugin's words")
    parser.add_argument("--only", help="rows whose group or name has these words")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="that a row may take")
    parser.add_argument("--json", action="store_true", help="the rows as JSON")


def run(arguments: argparse.Namespace) -> int:
    """0: what is required works, nothing is wrong; 1: not so; 2: wrong words, no such plugin."""
    os.environ.setdefault("TORCH_PJRT_CPU_DEVICES", "2")  # of CPU plugins; before they are found
    try:
        plugin = _find(arguments.plugin or os.environ.get("PJRT_DEVICE") or "CPU")
        rows = [r for r in table() if _is_asked(r, arguments.only)]
        if not rows:
            raise ValueError(f"no row has '{arguments.only}' in its group or name")
        answered = ask(plugin, rows, arguments.topology or "", arguments.seconds)
    except (ValueError, RuntimeError) as error:
        print(f"conform: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps([asdict(r) for r in answered], indent=1))
    else:
        print("\n".join(_text(plugin, answered)))
    bad = [r for r in answered if r.verdict in _BAD or (r.required and not r.works)]
    return 1 if bad else 0


def _is_asked(row: Row, only: str | None) -> bool:
    return only is None or only.lower() in f"{row.group} {row.name}".lower()


def _find(word: str) -> plugins.Plugin:
    """The plugin that NAME or NAME:/path stands for."""
    name, _, path = word.partition(":")
    found = [*plugins.find_from_variable(), *plugins.find()]
    known = next((p for p in found if p.name == name), None)
    if path:
        if not Path(path).is_file():
            raise ValueError(f"there is no file '{path}'")
        base = known or plugins.Plugin(name, path, "--plugin")
        return replace(base, library=str(Path(path).resolve()), source="--plugin")
    if known is None:
        names = ", ".join(p.name for p in found)
        raise ValueError(f"no plugin is called '{name}'; known are {names}\n"
                         f"  try: --plugin {name}:/path/to/plugin.so")  # fmt: skip
    if not known.library:
        raise RuntimeError(
            f"plugin {name} has no library: {known.problem or 'it is not installed'}\n"
            f"  try: {known.how_to_install}"
        )
    return known


def _setting(plugin: plugins.Plugin, topology: str) -> dict[str, Any]:
    """What _C.conform_ask takes, in its order."""
    there: dict[str, Any] = {"name": topology, "options": {}, "compile_options": {}}
    try:
        t = _topologies.resolve(plugin.name, topology or _TOPOLOGIES.get(plugin.name, ""))
        there = {"name": t.name, "options": t.options, "compile_options": t.compile_options}
    except (ValueError, RuntimeError):
        if topology and plugin.name in _TOPOLOGIES:
            raise
    return {
        "library": plugin.library,
        "options": plugin.options,
        "compile_options": plugin.compile_options,
        "topology": there["name"],
        "topology_options": there["options"],
        "topology_compile_options": there["compile_options"],
    }


def _environment(plugin: plugins.Plugin) -> dict[str, str]:
    env = os.environ | {
        "PJRT_DEVICE": plugin.name,
        "TORCH_PJRT_CACHE": "off",
        "TORCH_PJRT_TIERS": "off",  # every graph is a program
        "TORCH_PJRT_SLOW_COMPILE_MS": "600000",
    }
    if plugin.source == "--plugin":
        env["TORCH_PJRT_PLUGIN"] = f"{plugin.name}:{plugin.library}"
    return env


def ask(
    plugin: plugins.Plugin, rows: list[Row], topology: str = "", seconds: int = SECONDS
) -> list[Row]:
    """The rows with their answers. Raises RuntimeError where no process can ask at all."""
    order = {"plugin": _setting(plugin, topology), "seconds": seconds}
    # A client of torch's own and those of the C API's rows do not share a process.
    own = [r for r in rows if r.group in ("C API", "behaviour")]
    others = [r for r in rows if r not in own]
    answers: dict[str, tuple[str, str]] = {}
    for part in (own, others):
        left = [r.name for r in part]
        while left:
            answers |= _ask_in_a_process(order | {"rows": left}, _environment(plugin))
            left = [name for name in left if name not in answers]
    return [replace(r, verdict=answers[r.name][0], words=answers[r.name][1]) for r in rows]


def _ask_in_a_process(order: dict[str, Any], env: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Answers of the first rows: all of them, or as far as one that ends the process."""
    with tempfile.TemporaryDirectory(prefix="torch_pjrt_conform") as folder:
        paper, answers, said = (Path(folder, n) for n in ("order", "answers", "said"))
        paper.write_text(json.dumps(order))
        answers.touch()
        command = [sys.executable, "-m", "torch_pjrt._conform_child", str(paper), str(answers)]
        with said.open("w") as to:
            status = _wait(command, to.fileno(), env, order["seconds"] * (len(order["rows"]) + 2))
        lines = [json.loads(line) for line in answers.read_text().splitlines()]
        words = said.read_text(errors="replace")
    found = {line["name"]: (line["verdict"], line["words"]) for line in lines if "name" in line}
    begun = [line["begins"] for line in lines if "begins" in line]
    if begun and begun[-1] not in found:
        found[begun[-1]] = _end(status, words, order["seconds"])
    if not found:
        raise RuntimeError(f"the process that asks ended before its first row:\n{words.strip()}")
    return found


def _wait(command: list[str], said: int, env: dict[str, str], seconds: int) -> int | None:
    """The exit status; None where it took too long all the same."""
    try:
        done = subprocess.run(  # noqa: S603
            command, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=seconds,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _end(status: int | None, said: str, seconds: int) -> tuple[str, str]:
    """The answer of a row that ended its process."""
    if status is None or "Timeout (" in said:
        return "hangs", f"no answer in {seconds} s"
    last = [line for line in said.splitlines() if "Check failed" in line or "FATAL" in line]
    why = f": {' '.join(last[-1].split())}" if last else ""
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return "crashes", f"{how}{why}"


def _text(plugin: plugins.Plugin, rows: list[Row]) -> Iterator[str]:
    yield f"plugin {plugin.name}: {plugin.library}  [{plugin.source}]"
    for group in dict.fromkeys(r.group for r in rows):
        yield f"\n{group}"
        yield from (_line(r) for r in rows if r.group == group)
    counts = Counter(r.verdict for r in rows)
    yield "\n" + ", ".join(f"{counts[v]} {v}" for v in _VERDICTS if counts[v])


def _line(row: Row) -> str:
    words = f"  {row.words}" if row.words else ""
    line = f"  {row.verdict:<10}{row.name:<46}{words}".rstrip()
    if row.works:
        return line
    needed = "required" if row.required else "missed"
    return f"{line}\n{'':<12}{needed}: {row.missed}"


def markdown(columns: dict[str, list[Row]]) -> str:
    """A table of several plugins: the rows that do not work everywhere, and what users miss."""
    head = ["row", *columns, "what users miss without it"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for same in zip(*columns.values(), strict=True):
        cells = ["" if r.verdict == "works" else r.verdict for r in same]
        if any(cells):
            lines.append("| " + " | ".join([same[0].name, *cells, same[0].missed]) + " |")
    return "\n".join(lines)
