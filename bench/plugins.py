"""Training steps of the CPU plugins beside each other: first step, later ones, memory, processor.

Each contestant is a process that stays alive; they take turns, and the least of the rounds counts.
A contestant is `eager`, a wheel, or a wheel with compile options of its own:

    bench/plugins.py                                  # eager and the wheels that are installed
    bench/plugins.py lammps-jax-pjrt-cpu \
        lammps-jax-pjrt-cpu,xla_cpu_parallel_codegen_split_count=4 --models gpt

A `+` in an option's value stands for a comma. A name in capitals is a variable of the environment;
PROCESSORS=1 keeps the process on so many processors, CAPTURE=1 trains by a captured step.
`jax:PYTHON` is jax_steps.py, run by a Python that has jax (the MLP and the GPT).

`--check` compares the last contestant with the first: first steps, and least steps.

Prints the table of docs/performance.md. `cpu` is processor time a step: it tells more than `step`
on a machine with other work.
"""

import argparse
import ctypes
import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, cast

# Before the models import torch_pjrt, which reads it then: a first step compiles.
os.environ["TORCH_PJRT_CACHE"] = "off"

from contestant import nothing, serve
from gate import Gate
from models import MODELS


def value(text: str) -> str | int | bool:
    """A compile option's value as its type."""
    words = {"true": True, "false": False}
    return words[text] if text in words else int(text) if text.lstrip("-").isdecimal() else text


def choose(contestant: str) -> str:
    """Registers a contestant's plugin; the device it trains on."""
    if contestant == "eager":
        return "cpu"
    wheel, *settings = contestant.split(",")
    given = dict(s.split("=", 1) for s in settings)
    variables = {k: v for k, v in given.items() if k.isupper()}
    os.environ.update(variables, TORCH_PJRT_CPU_PLUGIN=wheel)
    if "PROCESSORS" in variables:
        os.sched_setaffinity(0, range(int(variables["PROCESSORS"])))
    from torch_pjrt import plugins

    plugin = plugins.find_cpu()
    more: dict[str, plugins.Option] = {
        k: value(v.replace("+", ",")) for k, v in given.items() if k not in variables
    }
    plugins.register([dataclasses.replace(plugin, compile_options=plugin.compile_options | more)])
    return "xla"


class Mallinfo(ctypes.Structure):
    """What glibc's mallinfo2() tells, in bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def held() -> dict[str, float]:
    """MB that malloc holds free, and of buffers on the device."""
    import torch_pjrt

    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    live = torch_pjrt.memory()["live_bytes"]
    return {"free": mallinfo().fordblks / 2**20, "live": live / 2**20}


def work(model: str, contestant: str, steps: int) -> None:
    """A contestant's process: a line for the first step, then one for each line it is sent."""
    device = choose(contestant)
    import torch

    import torch_pjrt

    torch.manual_seed(0)
    training = MODELS[model](device)
    torch_pjrt.sync(wait=True)

    if "CAPTURE" in os.environ and model == "gpt":  # its count of steps stays on the device
        training.optimizer = torch.optim.AdamW(training.model.parameters(), lr=3e-4, fused=True)
    captured = torch_pjrt.capture(training.on) if "CAPTURE" in os.environ else None

    def train(count: int) -> torch.Tensor:
        for i in range(count):
            loss = captured(*training.batch(i)) if captured else training.step(i)
            torch_pjrt.sync()
        torch_pjrt.sync(wait=True)
        return loss.detach()

    serve(train, steps, held if device == "xla" else nothing)


class Contestant:
    """One process and what it has told."""

    def __init__(self, name: str, model: str, steps: int) -> None:
        self.name = name
        ours = [sys.executable, __file__, "--work", model, name, str(steps)]
        jax = [name[4:], str(Path(__file__).with_name("jax_steps.py")), model, str(steps)]
        self.process = subprocess.Popen(  # noqa: S603 - ourselves
            jax if name.startswith("jax:") else ours,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.ask = cast("IO[str]", self.process.stdin)
        self.answers = cast("IO[str]", self.process.stdout)
        self.first = self.read()
        self.rounds: list[dict[str, float]] = []

    def read(self) -> dict[str, float]:
        """Its next answer; empty where it died."""
        line = self.answers.readline()
        answer: dict[str, Any] = json.loads(line) if line else {}
        return answer

    def go(self) -> None:
        """One round."""
        self.ask.write("go\n")
        self.ask.flush()
        self.rounds.append(self.read())

    def least(self, what: str) -> float:
        """Of all rounds, as it was told."""
        return min(r[what] for r in self.rounds)

    def end(self) -> float:
        """Ends it; seconds of its first step, infinite where it failed."""
        self.process.kill()
        return self.first.get("step", float("inf"))

    def row(self) -> str:
        """Its line of the table."""
        if not self.first or not all(self.rounds):
            return f"| {self.name} | failed | | | | | |"
        first, step, cpu = self.first, self.least("step") * 1e3, self.least("cpu") * 1e3
        return (
            f"| {self.name} | {first['step']:.2f} | {first['cpu']:.2f} | {step:.2f} | {cpu:.2f} "
            f"| {self.least('rss'):.0f} | {first['loss']:.4f} |"
        )


# What the last contestant may take of the first one's time: a first step, a later one. Those over
# the budgets of the project (1.5; 1.0, GPT 0.75, ResNet 0.9) are as found: docs/performance.md.
CEILINGS = {
    "mlp": (20.0, 1.3),
    "gpt": (1.5, 1.2),
    "resnet": (1.5, 1.4),
    "resnet18": (1.5, 1.5),
    "densenet": (2.5, 2.2),
    "mobilenet": (2.5, 2.0),
    "lstm": (6.0, 1.8),
}


def compare(model: str, names: list[str], rounds: int, steps: int, gate: Gate) -> None:
    """The table of one model."""
    contestants = [Contestant(n, model, steps) for n in names]
    alive = [c for c in contestants if c.first]
    for _ in range(rounds):
        for c in alive:
            c.go()
    for c in alive:
        c.process.kill()
    columns = "first step, s", "its cpu, s", "step, ms", "cpu, ms", "peak RSS, MB", "first loss"
    print(f"\n| {model} | {' | '.join(columns)} |")
    print("|---" * 7 + "|")
    for c in contestants:
        print(c.row(), flush=True)
    gate.most(f"{model}: contestants that failed", len(contestants) - len(alive), 0)
    if not alive:
        return
    beside, last = alive[0], alive[-1]
    first, later = CEILINGS[model]
    steps_of = beside.first["step"], last.first["step"]
    if steps_of[1] > first * steps_of[0]:
        # Once more: memory that nobody used for long may come back slowly to a first process.
        again = (Contestant(c.name, model, steps).end() for c in (beside, last))
        steps_of = min(steps_of[0], next(again)), min(steps_of[1], next(again))
    gate.most(f"{model}: first step", steps_of[1] / steps_of[0], first)
    gate.most(f"{model}: later steps", last.least("step") / beside.least("step"), later)


def installed() -> list[str]:
    """The CPU wheels that are here."""
    from torch_pjrt import plugins

    return [w.distribution for w in plugins.CPU_WHEELS if plugins.find_wheel(w)]


def main() -> int:
    """Command line: see the top of the file."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("contestants", nargs="*", help="default: eager and each installed wheel")
    ap.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    ap.add_argument("--rounds", type=int, default=8)
    ap.add_argument(
        "--steps", type=int, default=4, help="of one round; the MLP takes 50 times more"
    )
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    names = args.contestants or ["eager", *installed()]
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"model name\s*: (.*)", text)
    load = os.getloadavg()[0]
    print(f"{found.group(1) if found else ''}, {os.cpu_count()} processors, load {load:.1f}")
    gate = Gate(args.check)
    for model in args.models:
        steps = args.steps * (50 if model == "mlp" else 1)
        compare(model, names, args.rounds, steps, gate)
    return gate.verdict()


if __name__ == "__main__":
    sys.exit(main())
