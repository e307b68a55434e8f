"""Programs as text: run on the CPU and on the device, compared, and printed as runnable Python.

A program is a list of statements over tensors t0, t1, ... A statement may raise: then it must raise
the same type on the device. `note(x)` reads x there and then; all tensors are compared at the end.
"""

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

import torch_pjrt

RTOL = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-4, torch.float64: 1e-9}


@dataclass
class Statement:
    """A line, whether the values it makes are exact (the same bits everywhere), what it uses."""

    text: str
    exact: bool = True
    kind: str = ""
    used: tuple[str, ...] = ()
    drop: str = ""  # a variable that is given up behind it


@dataclass
class Run:
    """What a program did: each statement's error, what was read, and the tensors left over."""

    device: str
    env: dict[str, Any] = field(default_factory=dict)
    errors: list[Exception | None] = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        sync: Callable[..., None] = torch_pjrt.sync if self.device == "xla" else _nothing
        self.env |= {"torch": torch, "F": F, "dev": self.device, "sync": sync}
        self.env |= {"note": self._note, "grad_of": grad_of, "default": default}

    def _note(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().clone()
        self.notes.append(value)

    def step(self, text: str) -> Exception | None:
        """Runs one statement; gives its error."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(text, self.env)
            self.errors.append(None)
        except Exception as e:
            self.errors.append(e)
        return self.errors[-1]

    def tensors(self) -> dict[str, torch.Tensor]:
        """The program's variables."""
        return {k: v for k, v in self.env.items() if k[0] == "t" and k[1:].isdigit()}


def _nothing(*_: Any, **__: Any) -> None:
    pass


@contextmanager
def default(dtype: torch.dtype) -> Iterator[None]:
    """The default dtype, for a while."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def grad_of(out: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    """A gradient; zeros where there is none."""
    g = torch.autograd.grad(out, leaf, allow_unused=True, retain_graph=True)[0]
    return torch.zeros_like(leaf) if g is None else g


HEADER = f"""import torch, torch_pjrt
from collections.abc import Iterator
from contextlib import contextmanager
from torch.nn import functional as F
dev = "xla"  # and "cpu" for eager's answer
sync, note = torch_pjrt.sync, print
{inspect.getsource(grad_of)}{inspect.getsource(default)}"""


def source(statements: list[Statement], run: Run | None = None) -> str:
    """The program as runnable Python; statements that raise are caught."""
    lines = [HEADER.rstrip()]
    for i, s in enumerate(statements):
        error = run.errors[i] if run and i < len(run.errors) else None
        lines.append(s.text if error is None else f"# raises {type(error).__name__}: {s.text}")
        lines += [f"del {s.drop}"] if s.drop else []
    return "\n".join([*lines, ""])


class DifferenceError(AssertionError):
    """The device's answer is not eager's."""


def layout(t: torch.Tensor) -> tuple[Any, ...]:
    """What eager and device must agree on besides values.

    Strides of dims of size 1, and of empty tensors, mean nothing: PyTorch's tests skip them too.
    """
    strides = tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1)
    window = (strides, t.storage_offset()) if t.numel() else ()
    flags = (t.is_contiguous(), t.is_conj(), t.is_neg(), t.is_inference(), t.requires_grad)
    return (t.dtype, tuple(t.shape), *window, *flags, leaf(t))


def leaf(t: torch.Tensor) -> bool | str:
    """Whether it is a leaf; asking a view whose base was changed may raise."""
    try:
        return t.is_leaf
    except RuntimeError as e:
        return str(e).splitlines()[0]


def compare(name: str, ours: Any, eager: Any, share: float | None, scale: float) -> None:
    """Raises DifferenceError. Values with a share may differ by it, of the largest number seen."""
    if not isinstance(eager, torch.Tensor):
        if isinstance(eager, str):
            same = bare(ours) == bare(eager)
        else:
            return compare(name, torch.tensor(ours), torch.tensor(eager), share, scale)
        if not same:
            raise DifferenceError(f"{name}: ours {ours}, eager {eager}")
        return None
    real = eager.dtype.to_real() if eager.is_complex() else eager.dtype
    tol = 0.0 if share is None or real not in RTOL else max(RTOL[real], share)
    try:
        torch.testing.assert_close(
            ours.detach().cpu(), eager.detach(), rtol=tol, atol=tol * scale, equal_nan=True
        )
    except AssertionError as e:
        raise DifferenceError(f"{name}: {e}\nours {ours.detach().cpu()}\neager {eager}") from None
    return None


def bare(text: str) -> str:
    """A tensor's text without its device, its op, and the line breaks that these move."""
    text = re.sub(
        r"-0\.(?=[-+]|j)", "0.", text.replace("-0.j", "+0.j")
    )  # eager's two kernels differ
    text = re.sub(r"grad_fn=<\w+>|device='xla:0'", "", text)  # .to(cpu) is no op on the CPU
    return "".join(text.replace(",", " ").split())


def run_on_device(statements: list[Statement], eager: Run) -> Run:
    """Runs it on the device; errors must come from the same statements, with the same type."""
    ours = Run("xla")
    for i, s in enumerate(statements):
        got, want = ours.step(s.text), eager.errors[i]
        if type(got) is not type(want):
            raise DifferenceError(f"'{s.text}': ours {got!r}, eager {want!r}")
        if s.drop:
            del ours.env[s.drop]
    return ours


def check(statements: list[Statement], eager: Run, inexact: dict[str, float], scale: float) -> None:
    """Runs the program on the device and compares reads, layouts and values with eager's run.

    `inexact`: variables, and indices of reads as text, that may be rounded, and its share.
    """
    ours = run_on_device(statements, eager)
    for i, (a, b) in enumerate(zip(ours.notes, eager.notes, strict=True)):
        compare(f"read {i}", a, b, inexact.get(str(i)), scale)
    left = ours.tensors()
    torch_pjrt.sync()
    for name, t in eager.tensors().items():
        got, want = layout(left[name]), layout(t)
        if isinstance(got[-1], str) and want[-2]:  # PyTorch's own error: docs/fuzz.md
            got, want = got[:-1], want[:-1]
        if got != want:
            raise DifferenceError(f"{name}: ours {got}, eager {want}")
        compare(name, left[name], t, inexact.get(name), scale)


def check_text(text: str) -> None:
    """A stored program, one statement a line; '~' before a line: its value may be rounded."""
    lines = [x for x in text.splitlines() if x.strip() and not x.startswith("#")]
    statements = [Statement(x.lstrip("~ "), not x.startswith("~")) for x in lines]
    eager = Run("cpu")
    for s in statements:
        eager.step(s.text)
    rough = any(not s.exact for s in statements)
    names = [*eager.tensors(), *map(str, range(len(eager.notes)))] if rough else []
    check(statements, eager, dict.fromkeys(names, 0.0), 10.0)
