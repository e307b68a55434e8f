"""Runs pytorch/xla's own test files on compat/torch_xla, against the list of what passes there.

python tools/peer.py CHECKOUT [RUN...]: CHECKOUT is a clone of pytorch/xla at tag v2.9.0, RUN a name
of the first column of tests/peer/tests.tsv (all of them otherwise). Each file runs as a process of
its own, as there. A test that passes there and not here has to stand in tests/peer/gaps.tsv with a
reason: the command ends with 1 otherwise. Results are in build/peer, a file a run.

PEER_PATH names folders with packages that some files import (torchvision, whose models will do);
PEER_SECONDS is how long a file may take (900), PEER_NICE the niceness (19).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / "tests" / "peer"
OUT = ROOT / "build" / "peer"
SECONDS = int(os.environ.get("PEER_SECONDS", "900"))  # of a file
SCRIPT = "<script>"
NOT_RUN = ("not run", "")


@dataclass
class Run:
    """A test file with an environment, and the tests that pass there."""

    name: str
    env: dict[str, str]
    tests: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Of the file, under test/."""
        return self.name.partition("@")[0].replace("__", "/") + ".py"


def read_runs() -> dict[str, Run]:
    """By name, in the order of tests.tsv."""
    found: dict[str, Run] = {}
    for line in (PEER / "tests.tsv").read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        name, test, *rest = line.split("\t")
        pairs = (p.split("=", 1) for p in (rest[0].split() if rest else []))
        env = {k: v for k, v in pairs if k != "PYTHONPATH"}
        tests = found.setdefault(name, Run(name, env)).tests
        if (test := without_address(test)) not in tests:
            tests.append(test)
    return found


def listed() -> dict[str, list[str]]:
    """The names of torch_xla 2.9.0 by module, in the file's order."""
    modules: dict[str, list[str]] = {}
    current: list[str] = []
    for line in (PEER / "api.txt").read_text().splitlines():
        if line.startswith("["):
            current = modules.setdefault(line[1:-1], [])
        elif modules and line.strip():
            current.append(line.split()[0])
    return modules


def without_address(test: str) -> str:
    """A parametrised test's name may say where its parameter is in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", test)


def read_gaps() -> dict[tuple[str, str], str]:
    """Reasons by (run, test); test "*" stands for all of a run."""
    gaps: dict[tuple[str, str], str] = {}
    for line in (PEER / "gaps.tsv").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, test, reason = line.split("\t")
            gaps[name, test] = reason
    return gaps


def environment(run: Run, checkout: Path, results: Path) -> dict[str, str]:
    """What the file's process gets."""
    path = [str(PEER), str(ROOT / "compat" / "torch_xla"), str(checkout / "test")]
    path += [p for p in os.environ.get("PEER_PATH", "").split(os.pathsep) if p]
    return os.environ | {
        "PJRT_DEVICE": "CPU",
        "TORCH_PJRT_CACHE": "off",
        "PEER_RESULTS": str(results),
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": "2",
        "TORCH_TEST_DEVICES": str(checkout / "test" / "pytorch_test_base.py"),
        **run.env,
    }


def execute(
    run: Run, checkout: Path, only: list[str], its_own_main: bool = True
) -> tuple[int, str]:
    """Runs the file, or unittest on it; its exit status and the end of what it said."""
    results = OUT / f"{run.name}.jsonl"
    folder = OUT / "cwd" / run.name
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    file = checkout / "test" / run.path
    command, env = [sys.executable, str(file), *only], environment(run, checkout, results)
    if not its_own_main:
        command = [sys.executable, "-m", "unittest", *(f"{file.stem}.{t}" for t in only)]
        env["PEER_MODULE"] = file.stem
        env["PYTHONPATH"] = os.pathsep.join([str(file.parent), env["PYTHONPATH"]])
    with (OUT / f"{run.name}.log").open("a") as log:
        try:
            code = subprocess.run(  # noqa: S603 - the checkout's own tests
                command, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT,
                timeout=SECONDS, check=False, stdin=subprocess.DEVNULL,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            code = 124
    return code, (OUT / f"{run.name}.log").read_text(errors="replace")[-2000:]


def outcomes(run: Run) -> dict[str, tuple[str, str]]:
    """(outcome, detail) by test; a test that began and never ended died with its process."""
    found: dict[str, tuple[str, str]] = {}
    results = OUT / f"{run.name}.jsonl"
    for line in results.read_text().splitlines() if results.exists() else []:
        outcome, test, detail = json.loads(line)
        test = without_address(test)
        if outcome == "start":
            found[test] = ("died", "")
        elif found.get(test, ("", ""))[0] not in ("fail", "error"):
            found[test] = (outcome, detail)
    return found


def judge(run: Run, checkout: Path, go_on: bool) -> dict[str, tuple[str, str]]:
    """Runs the file until each test has an outcome: what died is left out of the next try."""
    code, said = 0, ""
    if not go_on or not outcomes(run):
        for old in (OUT / f"{run.name}.jsonl", OUT / f"{run.name}.log"):
            old.unlink(missing_ok=True)
        code, said = execute(run, checkout, [])
    if run.tests == [SCRIPT]:
        return {SCRIPT: ("pass" if code == 0 else "fail", said[-600:])}
    found = outcomes(run)
    for _ in range(5):
        missing = [t for t in run.tests if t not in found and t != SCRIPT]
        if not missing:
            break
        if found:
            execute(run, checkout, missing)
        more = outcomes(run)
        if more.keys() == found.keys():  # its own main fails, takes no names, or stops early
            execute(run, checkout, missing, its_own_main=False)
            more = outcomes(run)
        if more.keys() == found.keys():
            break  # names that it has not
        found = more
    lost = ("missing", said[-600:])
    return {t: found.get(t, lost) for t in run.tests}


def report(found: dict[str, dict[str, tuple[str, str]]]) -> int:
    """Prints what passes and what does not; 1 where something is neither passed nor a gap."""
    gaps, wrong, stale = read_gaps(), [], []
    counts: Counter[str] = Counter()
    for name, tests in found.items():
        for test, (outcome, detail) in tests.items():
            reason = gaps.get((name, test)) or gaps.get((name, "*"))
            open_end = "not run" if outcome == NOT_RUN[0] else "wrong"
            kind = "pass" if outcome == "pass" else "gap" if reason else open_end
            counts[kind] += 1
            if kind == "wrong":
                wrong.append(f"{name}\t{test}\t{outcome}: {detail.strip()[-300:]!r}")
            elif outcome == "pass" and (name, test) in gaps:
                stale.append(f"{name}\t{test}")
    print(*wrong, sep="\n")
    print(*(f"passes, and stands in gaps.tsv: {s}" for s in stale), sep="\n")
    print(
        f"{counts['pass']} pass, {counts['gap']} gaps, {counts['wrong']} fail without a reason, "
        f"{counts['not run']} not run"
    )
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--go-on", action="store_true", help="only what has no outcome yet")
    parser.add_argument("--no-run", action="store_true", help="only what broken-off runs left")
    asked = parser.parse_intermixed_args()
    runs = read_runs()
    OUT.mkdir(parents=True, exist_ok=True)
    os.nice(int(os.environ.get("PEER_NICE", "19")))
    found = {}
    for name in asked.runs or list(runs):
        start = time.monotonic()
        if asked.no_run:
            known = {t: o for t, o in outcomes(runs[name]).items() if o[0] != "died"}
            found[name] = {t: known.get(t, NOT_RUN) for t in runs[name].tests}
        else:
            found[name] = judge(runs[name], asked.checkout.resolve(), asked.go_on)
        passed = sum(o == "pass" for o, _ in found[name].values())
        seconds = time.monotonic() - start
        print(f"{name}: {passed} of {len(found[name])} in {seconds:.0f} s", flush=True)
        (OUT / f"{name}.json").write_text(json.dumps(found[name], indent=1))
    return report(found)


if __name__ == "__main__":
    sys.exit(main())
