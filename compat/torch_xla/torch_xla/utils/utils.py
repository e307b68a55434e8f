"""Small things that test scripts use."""

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any


class Cleaner:
    """Calls a function when it goes."""

    def __init__(self, func: Callable[[], Any]) -> None:
        self.func = func

    def __del__(self) -> None:
        self.func()


class LazyProperty:
    """A value that is made at its first use."""

    def __init__(self, gen_fn: Callable[[], Any]) -> None:
        self._make, self._made = gen_fn, False

    @property
    def value(self) -> Any:
        if not self._made:
            self._value, self._made = self._make(), True
        return self._value


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


class DataWrapper:
    """What holds tensors in a way of its own: says which, and is made anew of others."""

    def get_tensors(self) -> list[Any]:
        raise NotImplementedError(f"{type(self).__name__} has to define get_tensors")

    def from_tensors(self, tensors: list[Any]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has to define from_tensors")


class TmpFolder:
    """A folder that goes with its block, or with the object."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp()
        self._cleaner = Cleaner(lambda name=self.name: shutil.rmtree(name, ignore_errors=True))

    def __enter__(self) -> "TmpFolder":
        return self

    def __exit__(self, *_: Any) -> None:
        shutil.rmtree(self.name, ignore_errors=True)


class TimedScope:
    """Prints how long the block took."""

    def __init__(self, msg: str = "", printfn: Callable[[str], Any] | None = print) -> None:
        self._msg, self._print = msg, printfn or null_print

    def __enter__(self) -> "TimedScope":
        self._start = time.time()
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self._print(f"{self._msg}{time.time() - self._start:.3f}s")


def timed(fn: Callable[[], Any], msg: str = "", printfn: Any = print) -> Any:
    with TimedScope(msg, printfn):
        return fn()


def getenv_as(name: str, type: Callable[[Any], Any], defval: Any = None) -> Any:
    """The variable, as a bool "1", "true", "yes" in any case."""
    value = os.environ.get(name)
    if value is None:
        return defval
    if type is bool:
        return value.lower() in ("1", "true", "yes", "t", "y", "on")
    return type(value)


def check_env_flag(name: str, default_value: str = "") -> bool:
    return os.getenv(name, default_value).upper() in ("ON", "1", "YES", "TRUE", "Y")


def null_print(*args: Any, **kwargs: Any) -> None:
    """Prints nothing."""


def eprint(*args: Any, **kwargs: Any) -> None:
    print(*args, file=sys.stderr, **kwargs)


def get_print_fn(debug: bool | None = None) -> Callable[..., Any]:
    """Print to stderr where DEBUG is set in the environment, else to nowhere."""
    return eprint if (getenv_as("DEBUG", bool, False) if debug is None else debug) else null_print


def as_list(t: Any) -> Any:
    return t if isinstance(t, tuple | list) else [t]


def list_copy_append(ilist: list[Any], item: Any) -> list[Any]:
    return [*ilist, item]


def flatten_nested_tuple(inputs: Any) -> tuple[Any, ...]:
    """Lists and tuples in each other, as one tuple."""
    if not isinstance(inputs, tuple | list):
        return (inputs,)
    return tuple(x for part in inputs for x in flatten_nested_tuple(part))


def shape(inputs: Any) -> list[int]:
    """Of nested lists."""
    found = []
    while isinstance(inputs, tuple | list):
        found.append(len(inputs))
        inputs = inputs[0] if inputs else None
    return found


def get_free_tcp_ports(n: int = 1) -> list[int]:
    with contextlib.ExitStack() as open_ones:
        made = [open_ones.enter_context(socket.socket()) for _ in range(n)]
        for s in made:
            s.bind(("", 0))
        return [s.getsockname()[1] for s in made]


def parallel_work(num_workers: int, fn: Callable[..., Any], *args: Any) -> list[Any]:
    """`fn` of the n-th value of each of `args`, in threads; the results in their order."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(num_workers, f"torch_xla-{threading.get_ident()}") as pool:
        return list(pool.map(fn, *args))


# ---- values inside of any object ------------------------------------------------------------


def _inside(value: Any, rewrite: Callable[[Any], Any]) -> Any:
    """`value` with `rewrite` of each part: of containers a new one, of objects the same."""
    if isinstance(value, dict):
        return type(value)((rewrite(k), rewrite(v)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(rewrite, value))
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(rewrite(x) for x in value)
    if hasattr(value, "__dict__") and not isinstance(value, type):
        for name, x in vars(value).items():
            vars(value)[name] = rewrite(x)
    return value


def for_each_instance_rewrite(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> Any:
    """`value` with `fn(x)` in place of each x that `select_fn` takes; each object once."""
    seen: dict[int, Any] = {}

    def rewrite(x: Any) -> Any:
        if id(x) not in seen:
            kept.append(x)
            seen[id(x)] = x  # a cycle comes back here
            seen[id(x)] = fn(x) if select_fn(x) else _inside(x, rewrite)
        return seen[id(x)]

    kept: list[Any] = []  # an id stays that of its object
    return rewrite(value)


def for_each_instance(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> None:
    """Calls `fn` of each x in `value` that `select_fn` takes."""

    def same(x: Any) -> Any:
        fn(x)
        return x

    for_each_instance_rewrite(value, select_fn, same)
