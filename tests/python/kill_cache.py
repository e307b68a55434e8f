"""Kills processes at random times while they store programs, and looks at what they leave.

`python tests/python/kill_cache.py 200` does so 200 times, test_cache.py a few times. Needs
TORCH_PJRT_PLUGIN=FAKE:..., PJRT_DEVICE=FAKE and an empty TORCH_PJRT_CACHE. Each process is forked
from this one before the device is used.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable

import torch

import torch_pjrt

__all__ = ["main"]


def _programs(seed: int) -> None:
    """Compiles and stores ever new programs of some 300 KB, until killed."""
    for n in range(1, 1 << 20):
        x = torch.ones(seed * 10_000 + n).to("xla")
        for _ in range(400):
            x = x.sin()
        torch_pjrt.sync()


def _right() -> None:
    """Uses the folder as any process would: everything must come out right."""
    for n in (1, 2):
        x = torch.arange(float(n)).to("xla")
        assert (x + 1).tolist() == [0.0] * n  # the fake plugin computes zeros
        assert x.tolist() == [float(i) for i in range(n)]


def _forked(work: Callable[[], None]) -> int:
    """The process that does it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:  # the child must end here whatever happens
            print(f"child: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def main(rounds: int) -> tuple[int, int, int]:
    """(kills, how many left half a file, whole programs at the end); raises where one is broken."""
    half = 0
    for i in range(rounds):
        pid = _forked(lambda i=i: _programs(i % 7 + 1))
        time.sleep(random.uniform(0.01, 0.25))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        wrong = torch_pjrt.cache.verify()
        broken = [w for w in wrong if not w[0].endswith(".part")]
        assert not broken, broken
        half += len(wrong)
        if i % 10 == 9:
            assert os.waitpid(_forked(_right), 0)[1] == 0
            torch_pjrt.cache.prune()
            assert torch_pjrt.cache.verify() == []
    torch_pjrt.cache.prune()
    assert torch_pjrt.cache.verify() == []
    return rounds, half, torch_pjrt.cache.stats().programs


if __name__ == "__main__":
    kills, left, whole = main(int(sys.argv[1]))
    print(f"{kills} kills, {left} half files left and removed, {whole} whole programs, none broken")
