"""Eager mode: a cut after every op."""

import itertools
import threading
from types import TracebackType

from . import _C

__all__ = ["UNSET", "eager_mode"]

UNSET = -1  # of a thread's switch: as for all threads


class _ForAll:
    """The switch for all threads.

    `eager_mode(True)` and `with eager_mode(True):` begin alike: a switch that turns out to open a
    block is taken back, whoever switched since.
    """

    KEPT = 64  # older ones stay

    def __init__(self) -> None:
        self._lock = threading.RLock()  # held over a sync: what listens there may switch too
        self._numbers = itertools.count()
        self._settled = False
        self._made: dict[int, bool] = {}  # oldest first

    def switch(self, on: bool) -> int:
        """Sets it; a number to take it back by."""
        with self._lock:
            number = next(self._numbers)
            self._made[number] = on
            if len(self._made) > self.KEPT:
                self._settled = self._made.pop(next(iter(self._made)))
            _C.set_eager_mode(on)
            return number

    def take_back(self, number: int) -> None:
        """Sets what would be set without that switch."""
        with self._lock:
            self._made.pop(number, None)
            on = next(reversed(self._made.values()), self._settled)
            if on != _C.eager_mode_for_all():
                _C.set_eager_mode(on)


_for_all = _ForAll()


class eager_mode:  # noqa: N801 - used like torch.no_grad and torch.set_grad_enabled
    """Runs every op when it is called, as PyTorch does on other devices.

    `eager_mode(True)` switches it on for all threads. `with eager_mode():` is for a block of this
    thread and the backward passes that it starts, and puts back what was before. Programs come from
    the same cache and stay asynchronous; values are lazy mode's. For debugging, and for code whose
    graphs never repeat. Switching on runs what is pending.
    """

    def __init__(self, on: bool = True) -> None:
        self._on = bool(on)
        self._number = _for_all.switch(self._on)
        self._before: list[int] = []

    def __enter__(self) -> "eager_mode":
        self._before.append(_C.exchange_thread_eager_mode(int(self._on)))
        _for_all.take_back(self._number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _C.exchange_thread_eager_mode(self._before.pop())
