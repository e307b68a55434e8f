"""Modules of PyTorch's OpInfo database as an accelerator gets them, and whether one compiles them.

    python tests/ops/cover.py record FOLDER PLATFORM [--only name,name]
    python tests/ops/cover.py compile FOLDER TOPOLOGY

`record` runs on the fake plugin (TORCH_PJRT_FAKE_PLUGIN): values are zeros, modules are those of
PLATFORM ("tpu"). It keeps a cover: few modules that have every statement with every element type.
`compile` prints a line of JSON for each module: its file, seconds, and the plugin's words and the
module's ops where it does not compile.
"""

import argparse
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]

SAMPLES = 2
SECONDS = 300  # of one module's compile, on a loaded machine
STATEMENT = re.compile(r'= "([\w.]+)"\(.*?(?:\{(.*)\} )?: \((.*)\) -> (.*)')
ELEMENT = re.compile(r"tensor<((?:\d+x)*)([^<>]+(?:<\w+>)?)>")
# What tells one use of a statement from another, beside its types.
FEATURE = re.compile(
    r"fft_type = [^,}]*|comparison_direction [A-Z]+|compare_type [A-Z]+|rng_algorithm [A-Z_]+"
    r"|lhs_dilation = array<i64: [^>]*>|feature_group_count = \d+|batch_group_count = \d+"
)


def signatures(text: str) -> set[str]:
    """Each statement with its element types, whether one is empty, and its features."""
    found = set()
    for name, attrs, taken, given in STATEMENT.findall(text):
        types = ELEMENT.findall(f"{taken} -> {given}")
        kinds = " ".join(t for _, t in types[:6])
        empty = any(re.search(r"\b0x", d) for d, _ in types)
        features = [re.sub(r"[1-9]\d+", "n", f) for f in FEATURE.findall(attrs)]
        found.add(f"{name} {kinds} {empty} {' '.join(features)}")
    return found


def cover(modules: dict[str, set[str]]) -> list[str]:
    """Names of few modules that have all signatures: those that add the most come first."""
    left = set().union(*modules.values())
    chosen = []
    while left:
        best = max(modules, key=lambda m: (len(modules[m] & left), -len(modules[m])))
        chosen.append(best)
        left -= modules[best]
    return chosen


# ---- record


def too_long(*_: Any) -> None:
    raise TimeoutError


def calls(op: Any) -> Iterator[Any]:
    """Forward in every dtype, backward in some; nothing is read."""
    import torch
    from test_ops import Moved, run, uploaded

    for dtype in sorted(op.supported_dtypes("cpu"), key=str):
        for grad in (False, True):
            if grad and not (
                op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
            ):
                continue
            torch.manual_seed(0)
            try:
                made = list(islice(op.sample_inputs("cpu", dtype, requires_grad=grad), SAMPLES))
            except Exception:
                continue  # no samples of this dtype
            for s in made:
                yield lambda s=s, grad=grad: run(op, Moved(s, uploaded), grad=grad)


def record(folder: Path, platform: str, only: str) -> None:
    """Writes the cover's modules into the folder, and prints how many there were."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    import torch_pjrt
    from torch_pjrt import plugins

    library = os.environ["TORCH_PJRT_FAKE_PLUGIN"]
    plugins.register([plugins.Plugin("FAKE", library, "cover", recorded_for=platform)])
    signal.signal(signal.SIGALRM, too_long)
    seen: dict[str, set[str]] = {}
    all_dir = folder / "all"
    all_dir.mkdir(parents=True)
    for op in op_db:
        if only and op.name not in only.split(","):
            continue
        for call in calls(op):
            with torch_pjrt.graph.dump_to(all_dir):
                signal.alarm(30)
                try:
                    kept = call()  # results stay until the sync
                    torch_pjrt.sync(wait=True)
                    del kept
                except Exception:  # zeros in place of values: ops may refuse them
                    torch_pjrt.sync(wait=True)
                finally:
                    signal.alarm(0)
            gather(all_dir, seen, folder)
    torch.manual_seed(0)
    chosen = cover({n: s for n, s in seen.items() if s})
    for name in seen.keys() - set(chosen):
        (folder / name).unlink()
    print(json.dumps({"modules": len(seen), "cover": len(chosen)}))


def gather(from_: Path, seen: dict[str, set[str]], folder: Path) -> None:
    """Moves modules that have something new; drops the others."""
    known = set().union(*seen.values()) if seen else set()
    for path in sorted(from_.iterdir()):
        text = path.read_text() if path.suffix == ".mlir" else ""
        new = signatures(text) if text else set()
        if new - known:
            name = f"{len(seen):05d}.mlir"
            path.rename(folder / name)
            seen[name] = new
            known |= new
        else:
            path.unlink()


# ---- compile


def compile_here(folder: Path, topology: str, answers: Path) -> None:
    """Compiles what has no answer yet; ends the process where a module takes too long."""
    from torch_pjrt import aot

    there = aot.Topology(topology)
    done = {json.loads(x)["file"] for x in answers.read_text().splitlines()}
    with answers.open("a") as to:
        for path in sorted(folder.glob("*.mlir")):
            if path.name in done:
                continue
            answer: dict[str, Any] = {"file": path.name, "begins": True}
            to.write(json.dumps(answer) + "\n")
            to.flush()
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            start = time.monotonic()
            try:
                there.compile(path.read_text())
                answer = {"file": path.name}
            except Exception as error:
                answer = {"file": path.name, "words": " ".join(str(error).split())[:300]}
            faulthandler.cancel_dump_traceback_later()
            answer["seconds"] = round(time.monotonic() - start, 2)
            to.write(json.dumps(answer) + "\n")
            to.flush()


def compile_all(folder: Path, topology: str) -> None:
    """In processes of their own, since a compile cannot be stopped; prints the answers."""
    answers = folder / f"answers-{topology.replace(':', '-')}"
    answers.write_text("")
    count = len(list(folder.glob("*.mlir")))
    while len({json.loads(x)["file"] for x in answers.read_text().splitlines()}) < count:
        before = answers.read_text()
        command = [
            sys.executable,
            __file__,
            "compile",
            str(folder),
            topology,
            "--into",
            str(answers),
        ]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if answers.read_text() == before:
            raise SystemExit(f"nothing was compiled: {done.stderr[-2000:]}")
    found: dict[str, dict[str, Any]] = {}
    for line in answers.read_text().splitlines():
        found[json.loads(line)["file"]] = json.loads(line)
    for answer in found.values():
        if answer.pop("begins", False):
            answer["words"] = f"no end in {SECONDS} s, or a crash"
        if "words" in answer:
            text = (folder / answer["file"]).read_text()
            answer["ops"] = sorted(set(re.findall(r'loc\("(aten::\w+)"', text)))
        print(json.dumps(answer))


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("what", choices=["record", "compile"])
    p.add_argument("folder", type=Path)
    p.add_argument("target", help="a platform, or a topology")
    p.add_argument("--only", default="", help="op names, separated by commas")
    p.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.what == "record":
        record(o.folder, o.target, o.only)
    elif o.into:
        compile_here(o.folder, o.target, o.into)
    else:
        compile_all(o.folder, o.target)


if __name__ == "__main__":
    main()
