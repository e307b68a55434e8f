"""Loops that never sync, values of chains that are kept: what their long graphs cost.

python bench/long_graphs.py [--scale N] [--only NAME]: a row a program, in a process of its own,
without the disk cache. `first` is the whole first run, `again` the same loop once more.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import programs_only  # noqa: F401 - before torch_pjrt
from gate import Gate

Run = Callable[[], Any]


def kept_chain(n: int) -> Run:
    """200 values of a chain, all kept."""
    import torch

    def run() -> Any:
        x = torch.ones(64, 64).to("xla")
        kept: list[Any] = []
        for _ in range(n):
            x = x * 0.5 + 1
            kept.append(x)
        return kept

    return run


def indexed_adds(n: int) -> Run:
    """`x[i] += i`, 1,000 times."""
    import torch

    def run() -> Any:
        x = torch.zeros(n, 8).to("xla")
        for i in range(n):
            x[i] += i
        return [x]

    return run


def axpy(n: int) -> Run:
    """5,000 axpy."""
    import torch

    def run() -> Any:
        x, y = torch.ones(1000).to("xla"), torch.ones(1000).to("xla")
        for i in range(n):
            y = y + (1e-4 * i) * x
        return [y]

    return run


def _training(read_every: int) -> Callable[[int], Run]:
    def make(n: int) -> Run:
        import torch
        from torch import nn
        from torch.nn import functional as F

        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to("xla")
        opt = torch.optim.Adam(net.parameters(), lr=1e-3)
        x, y = torch.randn(8, 16).to("xla"), torch.randn(8, 4).to("xla")

        def run() -> Any:
            for i in range(n):
                opt.zero_grad()
                loss = F.mse_loss(net(x), y)
                loss.backward()  # type: ignore[no-untyped-call]
                opt.step()
                if read_every and i % read_every == read_every - 1:
                    loss.item()
            return list(net.parameters())

        return run

    return make


PROGRAMS: dict[str, tuple[Callable[[int], Run], int]] = {
    "kept chain": (kept_chain, 200),
    "x[i] += i": (indexed_adds, 1000),
    "axpy": (axpy, 5000),
    "Adam, no sync": (_training(0), 100),
    "Adam, read every 50th": (_training(50), 200),
}


def measure(name: str, scale: float) -> None:
    """One row, as JSON on stdout."""
    import torch_pjrt

    make, n = PROGRAMS[name]
    run = make(max(1, int(n * scale)))
    torch_pjrt.sync()
    torch_pjrt.wait()
    row: dict[str, Any] = {}
    for label in ("first", "again"):
        start = time.perf_counter()
        kept = run()
        torch_pjrt.sync()
        torch_pjrt.wait()
        row[label] = time.perf_counter() - start
        del kept
    compiles = torch_pjrt.explain().compiles
    row["compiles"] = len(compiles)
    row["seconds"] = sum(c.seconds for c in compiles)
    row["nodes"] = max((c.nodes for c in compiles), default=0)

    print(json.dumps(row))


def main() -> int:
    """The table."""
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--only", default="")
    p.add_argument("--row", default="", help="(one program, as JSON)")
    p.add_argument("--check", action="store_true")
    opts = p.parse_args()
    if opts.row:
        measure(opts.row, opts.scale)
        return 0
    gate = Gate(opts.check)
    print("| program | first, s | again, s | compiling, s | programs | largest, nodes |")
    print("|---|---|---|---|---|---|")
    for name in PROGRAMS:
        if opts.only not in name:
            continue
        command = [sys.executable, __file__, "--row", name, "--scale", str(opts.scale)]
        env = {**os.environ, "TORCH_PJRT_CACHE": "off"}
        done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, check=True)  # noqa: S603
        r = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {name} | {r['first']:.2f} | {r['again']:.2f} | {r['seconds']:.2f} "
            f"| {r['compiles']} | {r['nodes']} |",
            flush=True,
        )
        gate.most(f"{name}: compiling, s", r["seconds"], 2.0)
    return gate.verdict()


sys.exit(main())
