"""Small things that test scripts use."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any


class SampleGenerator:
    """`sample_count` times the same data: a loader without a data set."""

    def __init__(self, data: Any, sample_count: int) -> None:
        self._data, self._count = data, sample_count

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._count):
            yield self._data

    def __len__(self) -> int:
        return self._count


class FnDataGenerator:
    """Made-up batches."""

    def __init__(
        self, func: Callable[..., Any], batch_size: int, gen_tensor: Any, dims: Any = None,
        count: int = 1,
    ) -> None:  # fmt: skip
        self._func, self._batch, self._gen = func, batch_size, gen_tensor
        self._dims, self._count = list(dims or [1]), count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self._count):
            data = self._gen(self._batch, *self._dims)
            yield data, self._func(data)


class TmpFolder:
    """A folder that goes with its block."""

    def __enter__(self) -> "TmpFolder":
        self.name = tempfile.mkdtemp()
        return self

    def __exit__(self, *_: Any) -> None:
        shutil.rmtree(self.name)


class TimedScope:
    """Prints how long the block took."""

    def __init__(self, msg: str = "", printfn: Callable[[str], Any] = print) -> None:
        self._msg, self._print = msg, printfn

    def __enter__(self) -> "TimedScope":
        self._start = time.time()
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self._print(f"{self._msg}{time.time() - self._start:.3f}s")


def timed(fn: Callable[[], Any], msg: str = "", printfn: Callable[[str], Any] = print) -> Any:
    with TimedScope(msg, printfn):
        return fn()


def getenv_as(name: str, type: Callable[[Any], Any], defval: Any = None) -> Any:
    """The variable, as a bool "1", "true", "yes" in any case."""
    value = os.environ.get(name, defval)
    if type is bool:
        return str(value).lower() in ("1", "true", "yes", "t", "y")
    return None if value is None else type(value)


def check_env_flag(name: str, default_value: str = "") -> bool:
    return os.getenv(name, default_value).upper() in ("ON", "1", "YES", "TRUE", "Y")


def eprint(*args: Any, **kwargs: Any) -> None:
    print(*args, file=sys.stderr, **kwargs)


def as_list(t: Any) -> Any:
    return t if isinstance(t, tuple | list) else [t]


def shape(inputs: Any) -> list[int]:
    """Of nested lists."""
    found = []
    while isinstance(inputs, tuple | list):
        found.append(len(inputs))
        inputs = inputs[0] if inputs else None
    return found
