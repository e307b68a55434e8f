"""What a call costs: torch.compile and capture on the device, beside what they stand on.

Compiled calls: a function of N parameters and one input. "closure" is what torch.compile's wrapper
calls, "execute" the plugin's own call in it, "ours" the difference. Inference: a small GPT.
Steps: host time of an optimizer's or a model's step, lazy and captured.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import programs_only  # noqa: F401 - before torch_pjrt
import torch
import torch.nn.functional as F
from gate import Gate
from models import GPT, MODELS
from torch import nn

import torch_pjrt
from torch_pjrt import _C
from torch_pjrt._compile import CompiledFunction


def best(runs: dict[str, Callable[[], Any]], rounds: int, inner: int) -> dict[str, float]:
    """Microseconds a call, the best of interleaved rounds; the device is idle before each."""
    out = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            torch_pjrt.wait()
            start = time.perf_counter()
            for _ in range(inner):
                run()
            out[name] = min(out[name], (time.perf_counter() - start) / inner * 1e6)
    return out


class Sum(nn.Module):
    """Adds N small parameters to its input."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(4, 4) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum."""
        for w in self.weights:
            x = x + w
        return x


def closure_of(f: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """A call of what torch.compile made of f, without torch's wrapper around it."""
    made: list[Any] = []
    given: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Callable[..., Any]:
        from torch._dynamo.backends.common import aot_autograd

        def compiler(inner: Any, _: Any) -> Callable[..., Any]:
            function = CompiledFunction(inner, "bench")
            made.append(function)

            def run(args: list[Any]) -> Any:
                given[:] = args
                return function(args)

            run._boxed_call = True  # type: ignore[attr-defined]
            return run

        return aot_autograd(fw_compiler=compiler)(gm, inputs)

    torch.compile(f, backend=backend)(*args)
    return lambda: made[0](list(given))


def execute_us(run: Callable[[], Any], rounds: int) -> float:
    """Time of the plugin's execute call inside run(): the least mean of twenty, as in best()."""
    return min(mean_execute_us(run, 20) for _ in range(rounds))


def mean_execute_us(run: Callable[[], Any], calls: int) -> float:
    """Mean time of the plugin's execute call inside run()."""
    before = _C.timer_values()["Execute"]
    for _ in range(calls):
        run()
    torch_pjrt.wait()
    after = _C.timer_values()["Execute"]
    return (after[1] - before[1]) / (after[0] - before[0]) * 1e6


OURS = {10: 20.0, 300: 40.0}  # by parameters: microseconds of a compiled call that are ours


def calls(rounds: int, gate: Gate) -> None:
    """Prints the table of compiled calls."""
    print("| compiled call | whole, us | closure, us | execute, us | ours, us |")
    print("|---|---|---|---|---|")
    x = torch.ones(4, 4, device="xla")
    for count in (10, 300):
        m = Sum(count).to("xla")
        torch._dynamo.reset()
        with torch.no_grad():
            closure = closure_of(m.forward, x)
            runs: dict[str, Callable[[], Any]] = {
                "whole": functools.partial(torch.compile(m.forward), x),
                "closure": closure,
            }
            for run in tuple(runs.values()) * 3:
                run()
            t = best(runs, rounds, 20)
            execute = execute_us(closure, rounds)
        print(
            f"| {count} parameters | {t['whole']:.0f} | {t['closure']:.0f} | {execute:.0f} "
            f"| {t['closure'] - execute:.0f} |"
        )
        gate.most(f"compiled call of {count} parameters, us", t["closure"] - execute, OURS[count])


def waited(run: Callable[[], Any]) -> None:
    """A run with its end."""
    run()
    torch_pjrt.wait()


def adam(count: int) -> Callable[[], Any]:
    """A fused Adam step of `count` tensors."""
    params = [torch.ones(4, 4).to("xla").requires_grad_() for _ in range(count)]
    opt = torch.optim.Adam(params, lr=1e-3, fused=True)
    for p in params:
        p.grad = torch.ones_like(p)
    return opt.step


def mlp() -> Callable[[], Any]:
    """A training step: 784-512-512-10, batch 128, SGD with momentum."""
    m = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    ).to("xla")
    opt = torch.optim.SGD(m.parameters(), lr=1e-2, momentum=0.9)
    x, y = torch.randn(128, 784).to("xla"), torch.randint(0, 10, (128,)).to("xla")

    def step() -> torch.Tensor:
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        opt.step()
        return loss

    return step


def gpt() -> Callable[[], Any]:
    """A training step of the GPT of models.py, batches on the device."""
    training = MODELS["gpt"]("xla")
    training.optimizer = torch.optim.AdamW(training.model.parameters(), lr=3e-4, fused=True)
    return functools.partial(training.on, *training.batch(0))


def inference(rounds: int, gate: Gate) -> None:
    """Prints the table of a GPT of width 64 at work on 16 tokens."""
    torch.manual_seed(0)
    host = GPT(64, 4).eval()
    device = GPT(64, 4).eval().to("xla")
    ids = torch.randint(0, 512, (1, 16))
    there = ids.to("xla")
    torch._dynamo.reset()
    inductor, compiled = torch.compile(host, backend="inductor"), torch.compile(device)

    def lazy() -> None:
        device(there)
        torch_pjrt.sync(wait=True)

    runs: dict[str, Callable[[], Any]] = {
        "eager": lambda: host(ids),
        "inductor": lambda: inductor(ids),
        "lazy": lazy,
        "compiled": lambda: waited(lambda: compiled(there)),
    }
    with torch.inference_mode():
        for run in tuple(runs.values()) * 3:
            run()
        t = best(runs, rounds, 10)
    print(f"\n| GPT of width 64, 16 tokens, ms | {' | '.join(runs)} |")
    print("|---" * (len(runs) + 1) + "|")
    print(f"| | {' | '.join(f'{t[name] / 1e3:.3f}' for name in runs)} |")
    gate.most("compiled GPT over eager", t["compiled"] / t["eager"], 0.45 / 0.59)


def steps(rounds: int) -> None:
    """Prints the table of steps."""
    print("\n| step | lazy host, us | captured host, us | lazy whole, us | captured whole, us |")
    print("|---|---|---|---|---|")
    made = {"Adam, 300 tensors": lambda: adam(300), "MLP, batch 128": mlp, "GPT, 6x384": gpt}
    for name, make in made.items():
        runs = {"lazy": torch_pjrt.compile(make()), "captured": torch_pjrt.capture(make())}
        for run in runs.values():
            for _ in range(4):
                run()
        host = best(runs, rounds, 1)  # runs that are waited for end before the next begins
        whole = best({k: functools.partial(waited, r) for k, r in runs.items()}, rounds, 1)
        print(
            f"| {name} | {host['lazy']:.0f} | {host['captured']:.0f} "
            f"| {whole['lazy']:.0f} | {whole['captured']:.0f} |"
        )


def main() -> int:
    """Prints the tables."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--check", action="store_true")
    opts = p.parse_args()
    torch.set_num_threads(1)
    gate = Gate(opts.check)
    calls(opts.rounds, gate)
    inference(opts.rounds, gate)
    steps(opts.rounds)
    return gate.verdict()


sys.exit(main())
