"""`make fuzz N=10000 SEED=1`: random programs on the CPU and on the device, in chunks with seeds.

Each chunk of 100 programs has a seed of its own, written to build/fuzz/seeds.txt with what was
found. A failing program is made as small as it gets, printed as runnable Python, and stored.
"""

import argparse
import contextlib
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from maker import Maker, fails, make, reduced
from programs import source

import torch_pjrt

CHUNK = 100
FOUND = Path("build/fuzz")


class Chunk:
    """The programs of one seed; those that failed, made small, and why."""

    def __init__(self, number: int, programs: int) -> None:
        self.programs, self.statements = 0, 0
        self.failed: list[tuple[Maker, Exception]] = []
        self.seen: set[str] = set()  # hypothesis likes to repeat itself
        wrapped = given(st.data())(lambda data: self.one(data))
        self.test = seed(number)(
            settings(
                max_examples=programs, deadline=None, database=None, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )(wrapped)
        )  # fmt: skip

    def one(self, data: st.DataObject) -> None:
        m = make(data.draw)
        if (text := source(m.statements)) in self.seen:
            return
        self.seen.add(text)
        self.programs += 1
        self.statements += len(m.statements)
        if fails(m):
            m = reduced(m)
            if (text := source(m.statements)) not in self.seen:
                self.failed.append((m, fails(m) or RuntimeError("differs from run to run")))
            self.seen.add(text)


def report(number: int, chunk: Chunk) -> None:
    """Prints and stores the failing programs of a chunk."""
    for i, (m, why) in enumerate(chunk.failed):
        text = f"# seed {number}: {type(why).__name__}: "
        text += str(why)[:1500].replace("\n", "\n# ") + "\n" + source(m.statements, m.run)
        (FOUND / f"seed_{number}_{i}.py").write_text(text)
        print(text, flush=True)


def run(first: int, programs: int, keep_going: bool, step: int) -> int:
    """Runs chunks, every `step`-th seed, until enough programs ran; gives how many failed."""
    FOUND.mkdir(parents=True, exist_ok=True)
    done, failed, number, start = 0, 0, first, time.time()
    while done < programs and (keep_going or not failed):
        chunk = Chunk(number, min(CHUNK, programs - done))
        # Flaky: eager itself read memory that was not initialised.
        with contextlib.suppress(FlakyStrategyDefinition):
            chunk.test()
        torch_pjrt._C.clear_programs()  # XLA compiles slower the more kernels a process has
        report(number, chunk)
        done, failed = done + chunk.programs, failed + len(chunk.failed)
        line = f"seed {number}: {chunk.programs} programs, {chunk.statements} statements, "
        line += f"{len(chunk.failed)} failed"
        with (FOUND / "seeds.txt").open("a") as f:
            f.write(line + "\n")
        print(f"{line}; {done} in {time.time() - start:.0f} s", flush=True)
        number += step
    return failed


def beside(jobs: int, asked: argparse.Namespace) -> int:
    """The same in processes that each take a share of the programs, and every `jobs`-th seed."""
    command = [sys.executable, *sys.argv, "-j", "1", "--step", str(jobs)]
    share = -(-asked.n // jobs)
    running = [
        subprocess.Popen([*command, "-n", str(share), "--seed", str(asked.seed + k)])
        for k in range(jobs)
    ]
    return max([child.wait() for child in running], key=abs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=1000, help="programs")
    parser.add_argument("--seed", type=int, default=1, help="the first chunk's seed")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failure")
    parser.add_argument("-j", type=int, default=1, help="processes")
    parser.add_argument("--step", type=int, default=1, help="from one chunk's seed to the next")
    asked = parser.parse_args()
    if asked.j > 1:
        return beside(asked.j, asked)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    failed = run(asked.seed, asked.n, asked.keep_going, asked.step)
    print(f"{torch_pjrt.metrics.compiles()} compiles, {failed} programs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
