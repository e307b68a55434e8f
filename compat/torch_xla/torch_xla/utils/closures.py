"""Closures that run when a step has ended."""

import queue
import threading
from collections.abc import Callable
from typing import Any


class ClosureHandler:
    """Runs them one after the other."""

    def run(self, closure: Callable[[], Any]) -> None:
        closure()

    def run_all(self, closures: list[Callable[[], Any]]) -> None:
        for c in closures:
            self.run(c)


class AsyncClosureHandler(ClosureHandler):
    """Runs them in a thread, in order; the first error is raised at the next run."""

    def __init__(self, max_queue_size: int = 100) -> None:
        self._queue: queue.Queue[Callable[[], Any]] = queue.Queue(max_queue_size)
        self._errors: queue.Queue[BaseException] = queue.Queue()
        self._thread: threading.Thread | None = None

    def run(self, closure: Callable[[], Any]) -> None:
        if not self._errors.empty():
            raise RuntimeError("a step closure failed before") from self._errors.get()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        self._queue.put(closure)

    def _work(self) -> None:
        while True:
            closure = self._queue.get()
            try:
                closure()
            except BaseException as error:  # told at the next run
                self._errors.put(error)
            finally:
                self._queue.task_done()
