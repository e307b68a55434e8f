"""Queues that can be closed."""

import queue
import threading
from typing import Any


class QueueBase:
    """Items by key, until it is closed: then get() gives None at the end."""

    def __init__(self, maxsize: int = 4) -> None:
        self._max = maxsize
        self._changed = threading.Condition()
        self._closed = False

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close_write(self) -> None:
        self.close()


class Queue(QueueBase):
    """In the order of put()."""

    def __init__(self, maxsize: int = 4) -> None:
        super().__init__(maxsize)
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._max)
            self._items.append(item)
            self._changed.notify_all()

    def get(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._items)
            if not self._items:
                return None
            self._changed.notify_all()
            return self._items.pop(0)

    def max_size(self) -> int:
        return self._max


class KeydQueue(QueueBase):
    """By key."""

    def __init__(self, maxsize: int = 4, **_: Any) -> None:
        super().__init__(maxsize)
        self._items: dict[Any, queue.SimpleQueue[Any]] = {}

    def put(self, key: Any, item: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._count(key) < self._max)
            self._items.setdefault(key, queue.SimpleQueue()).put(item)
            self._changed.notify_all()

    def get(self, key: Any) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._count(key) > 0)
            if self._count(key) == 0:
                return None
            self._changed.notify_all()
            return self._items[key].get()

    def _count(self, key: Any) -> int:
        return self._items[key].qsize() if key in self._items else 0
