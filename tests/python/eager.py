"""Runs one program on the CPU and on the device and compares what came out: the tests' oracle."""

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import torch_pjrt

Program = Callable[..., Any]
TOLERANCE = {torch.bfloat16: 1.6e-2, torch.float16: 1e-3, torch.float32: 2e-5, torch.float64: 1e-9}


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """All tensors of nested lists, tuples and dicts, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        for v in tree.values():
            yield from tensors_in(v)
    elif isinstance(tree, list | tuple):
        for v in tree:
            yield from tensors_in(v)


def mapped(tree: Any, f: Callable[[Any], Any], kinds: Any = torch.Tensor) -> Any:
    """The tree of nested lists, tuples and dicts with f of each leaf of these kinds."""
    if isinstance(tree, kinds):
        return f(tree)
    if isinstance(tree, dict):
        return {k: mapped(v, f, kinds) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        items = [mapped(v, f, kinds) for v in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return tree


def moved(tree: Any, device: Any = "xla") -> Any:
    """A copy of the tree with its tensors on the device; strides stay, leaves stay leaves."""

    def move(t: torch.Tensor) -> torch.Tensor:
        made = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device)
        return made.copy_(t.detach()).requires_grad_(t.requires_grad)

    return mapped(tree, move)


def layout(t: torch.Tensor) -> tuple[Any, ...]:
    """What eager and device must agree on besides values."""
    bits = (t.is_conj(), t.is_neg(), t.requires_grad)
    return (t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.is_contiguous(), *bits)


def assert_equal(ours: Any, eager: Any, *, exact: bool = False) -> None:
    """Values within the dtype's tolerance; dtypes and shapes exactly. One sync for all."""
    ours, eager = list(tensors_in(ours)), list(tensors_in(eager))
    assert len(ours) == len(eager), f"{len(ours)} tensors, eager has {len(eager)}"
    if any(t.device.type == "xla" for t in ours):
        torch_pjrt.sync()
    for a, b in zip(ours, eager, strict=True):
        got, want = (a.dtype, tuple(a.shape)), (b.dtype, tuple(b.shape))
        assert got == want, f"ours: {got}, eager: {want}"
        tol = 0.0 if exact else TOLERANCE.get(b.real.dtype if b.is_complex() else b.dtype, 0.0)
        a, b = a.detach().cpu(), b.detach().cpu()
        torch.testing.assert_close(a, b, rtol=tol, atol=tol, equal_nan=True)


def outcome(program: Program, *args: Any) -> tuple[Any, Exception | None, list[str]]:
    """(result, error, warnings) of a program."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            return program(*args), None, [str(w.message) for w in seen]
        except Exception as e:
            return None, e, [str(w.message) for w in seen]


class Checks:
    """Programs that have to agree with eager; `agree` holds all of their values against eager's at
    once, so that they share one program of the device."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, Any, bool]] = []  # ours, eager, exact

    def __call__(self, program: Program, *args: Any, exact: bool = False) -> Any:
        """Runs the program on the CPU and on the device and compares layouts; values wait."""
        on_device = moved(args)
        eager, ours = program(*args), program(*on_device)
        got, want = list(tensors_in(ours)), list(tensors_in(eager))
        assert {t.device.type for t in got} <= {"xla"}
        for a, b in zip(got, want, strict=True):
            assert layout(a) == layout(b), f"ours: {layout(a)}, eager: {layout(b)}"
        # A later program may change the same arguments.
        kept = mapped([eager, args], lambda t: t.detach().clone())
        self.made.append(([ours, on_device], kept, exact))
        return ours

    def agree(self) -> None:
        torch_pjrt.sync()
        for ours, eager, exact in self.made:
            assert_equal(ours, eager, exact=exact)


def check(program: Program, *args: Any, exact: bool = False) -> Any:
    """The program gives eager's values and layouts on the device. Its arguments may be changed."""
    checks = Checks()
    ours = checks(program, *args, exact=exact)
    checks.agree()
    return ours


def check_error(program: Program, *args: Any) -> Exception:
    """Eager raises, and the device raises the same type with the same first line. Gives ours."""
    _, eager, _ = outcome(program, *args)
    assert eager is not None, "eager accepts this: not an error case"
    _, ours, _ = outcome(program, *moved(args))
    assert ours is not None, f"no error; eager says {type(eager).__name__}: {eager}"
    assert type(ours) is type(eager), f"{type(ours).__name__}: {ours}"
    got, want = first_line(ours), first_line(eager)
    assert got == want, f"\n  ours: {got}\n eager: {want}"
    return ours


def first_line(e: Exception) -> str:
    """The first line of a message, devices' names taken out."""
    line = str(e).splitlines()[0].replace("xla:0", "cpu").strip()
    return re.sub(r"XLA(\w+)Type", r"torch.\1Tensor", line)
