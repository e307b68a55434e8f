"""Functions run by several processes of this machine, each with one device."""

import functools
from collections.abc import Callable
from typing import Any

from .. import _processes
from ..distributed.xla_multiprocessing import spawn

__all__ = ["run_multiprocess", "spawn"]


def _answer(rank: int, fn: Callable[[], Any], answers: Any) -> None:
    answers.put((rank, fn()))


def run_multiprocess(
    fn: Callable[..., Any], *args: Any, start_method: str = "spawn", **kwargs: Any
) -> dict[int, Any]:
    """What `fn(*args, **kwargs)` gives in each process, by rank.

    There are as many as CPU_NUM_DEVICES says, and a torch.distributed group "xla" of them.
    """
    count, call = _processes.asked_for(), functools.partial(fn, *args, **kwargs)
    if count == 1:
        return {0: call()}
    import torch.multiprocessing as mp

    with mp.Manager() as manager:
        answers = manager.Queue(count)
        spawn(_answer, (call, answers), nprocs=count, start_method=start_method)
        return dict(answers.get() for _ in range(count))
