"""The whole of PyTorch's OpInfo database against eager: what `make conformance` runs.

Every op in every dtype that eager's CPU has for it, each sample as a plain call, on strided
operands, with `out=`, in place, and backward, under PyTorch's modes and transforms (modes.py), and
the inputs that have to raise. Writes docs/op-coverage.md and a JSON file with the reasons. An op
has a process's whole attention: a crash or a hang costs that op only.

    python tests/ops/conformance.py [--only name,name] [--samples 5] [--jobs 2] [--part k/n]
"""

import argparse
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "op-coverage.md"
READY = "ready"


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--only", default="", help="op names, separated by commas")
    p.add_argument("--samples", type=int, default=5, help="samples of an op, dtype and form")
    p.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    p.add_argument("--timeout", type=float, default=180, help="seconds for one op")
    p.add_argument("--part", default="0/1", help="k/n: every n-th op from the k-th")
    p.add_argument("--json", default="build/conformance.json", help="where the reasons go")
    p.add_argument("--page", default="", help="also write the page here (whole runs: always)")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


class Worker:
    """A child process that checks one op at a time; any thread, one at a time."""

    def __init__(self, opts: argparse.Namespace) -> None:
        self.opts, self.names = opts, list[str]()
        self.start()

    def start(self) -> None:
        command = [sys.executable, __file__, "--worker", "--samples", str(self.opts.samples)]
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.buffer = b""
        hello = self.read(300)
        if hello is None:
            raise SystemExit("a worker does not start; try: python tests/ops/conformance.py "
                             "--worker")  # fmt: skip
        self.names = hello[READY]

    def read(self, timeout: float) -> Any:
        """The next answer; None where there is none in time or the child is gone."""
        assert self.child.stdout is not None
        end = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                return None
            got = os.read(self.child.stdout.fileno(), 1 << 16)
            if not got:
                return None
            self.buffer += got
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def check(self, name: str) -> dict[str, Any]:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{name}\n".encode())
        self.child.stdin.flush()
        answer = self.read(self.opts.timeout)
        if answer is not None:
            return answer
        hung = self.child.poll() is None
        self.stop()
        self.start()
        what = f"no answer in {self.opts.timeout:.0f} s" if hung else "the process died"
        return {"wrong": {"process": what}, "forms": {}}

    def stop(self) -> None:
        self.child.kill()
        self.child.wait()


def run_all(opts: argparse.Namespace) -> dict[str, Any]:
    workers = [Worker(opts) for _ in range(opts.jobs)]
    only = set(filter(None, opts.only.split(",")))
    part, parts = map(int, opts.part.split("/"))
    names = [n for n in workers[0].names if not only or n in only or n.split(".")[0] in only]
    queue, results, lock = names[part::parts][::-1], dict[str, Any](), threading.Lock()
    total, began = len(queue), time.monotonic()

    def loop(worker: Worker) -> None:
        while True:
            with lock:
                if not queue:
                    return worker.stop()
                name = queue.pop()
            found = worker.check(name)
            with lock:
                results[name] = found
                if found["wrong"]:
                    print(f"{name}: {found['wrong']}", flush=True)
                if len(results) % 25 == 0:
                    print(f"{len(results)} of {total}, {time.monotonic() - began:.0f} s",
                          flush=True)  # fmt: skip

    threads = [threading.Thread(target=loop, args=(w,)) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return dict(sorted(results.items()))


FORMS = ("call", "strided", "out", "inplace", "backward", "double backward", "inference", "jvp",
         "vmap", "lazy bits", "trace", "errors", "refused")  # fmt: skip
HEAD = """# Coverage of PyTorch's operators

Generated by `make conformance` (`tests/ops/conformance.py`): PyTorch {torch}'s OpInfo
database, {samples} samples of each op, dtype and form, against eager CPU: values, dtypes, shapes,
strides, and the type of what is raised. Do not edit.

- **how**: `native`, a lowering to StableHLO; `host`, eager's CPU kernel called from inside the
  program; `cut`, at least one sample stops recording and runs on the CPU.
- A number is how many calls agree with eager; `1/3` says that two of three do not. `-`: the op has
  no such form. Two samples each: **double backward**; **inference**, under `torch.inference_mode`;
  **jvp**, forward-mode gradients; **vmap**; **lazy bits**, of conjugated or negated views;
  **trace**, through `torch.jit.trace`. **errors**: inputs that eager refuses, refused with the
  same type. **refused**: dtypes that eager has no kernel for, refused with the same type.

{summary}

| op | how | dtypes | {forms} |
|---|---|---|{rule}|
"""


def cell(counts: list[int] | None) -> str:
    if not counts or not counts[1]:
        return "-"
    return str(counts[1]) if counts[0] == counts[1] else f"**{counts[0]}/{counts[1]}**"


def page(results: dict[str, Any], opts: argparse.Namespace) -> str:
    import torch

    how = Counter(r.get("how", "failed") for r in results.values())
    right = sum(not r["wrong"] for r in results.values())
    calls = [r["forms"].get(f, [0, 0]) for r in results.values() for f in FORMS]
    summary = (
        f"{len(results)} OpInfos: {right} agree with eager in everything that was tried; "
        f"{sum(c[0] for c in calls)} of {sum(c[1] for c in calls)} calls agree. "
        + ", ".join(f"{k}: {n}" for k, n in sorted(how.items()))
        + "."
    )
    text = HEAD.format(torch=torch.__version__.split("+")[0], samples=opts.samples, summary=summary,
                       forms=" | ".join(FORMS), rule="|".join("---" for _ in FORMS))  # fmt: skip
    for name, r in results.items():
        cells = " | ".join(cell(r["forms"].get(f)) for f in FORMS)
        text += f"| {name} | {r.get('how', 'failed')} | {r.get('dtypes', 0)} | {cells} |\n"
    wrong = [(n, k, v) for n, r in results.items() for k, v in r["wrong"].items()]
    if wrong:
        text += "\n## What does not agree\n\n"
        text += "".join(f"- `{n}` {k}: {v.replace('|', '/')[:160]}\n" for n, k, v in wrong)
    return text


def main() -> None:
    opts = options()
    if opts.worker:
        import check  # the child's half; wants torch

        check.serve(opts.samples)
        return
    results = run_all(opts)
    where = ROOT / opts.json
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps(results, indent=1))
    target = Path(opts.page) if opts.page else None
    if not opts.only and opts.part == "0/1":
        target = target or PAGE
    if target:
        target.write_text(page(results, opts))
    wrong = {n: r["wrong"] for n, r in results.items() if r["wrong"]}
    print(f"{len(results)} OpInfos, {len(wrong)} with something wrong; reasons: {where}")


if __name__ == "__main__":
    main()
