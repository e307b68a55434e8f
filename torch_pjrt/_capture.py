"""`torch_pjrt.capture`: a step that is replayed without running its Python."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from . import _C
from ._explain import no_cuts

__all__ = ["CapturedStep", "capture"]


def _name(step: Any) -> str:
    """What the user calls it: not the arguments that a partial holds."""
    while isinstance(step, functools.partial):
        step = step.func
    return str(getattr(step, "__qualname__", type(step).__qualname__))


class CapturedStep:
    """A step that runs as usual at first and is replayed from then on. Made by `capture`."""

    def __init__(self, step: Callable[..., Any], check_every: int, on_change: str) -> None:
        functools.update_wrapper(self, step)
        self.step, self.check_every, self.on_change = step, check_every, on_change
        self.reset()

    def reset(self) -> None:
        """Forgets the program: the next calls run the step as usual and capture it again."""
        self.calls = 0
        self.captured: Any = None
        self.signature: Any = None
        self.results: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The step's result; its tensors carry no gradient history."""
        flat, spec = tree_flatten((args, kwargs))
        tensors, signature = _arguments(flat)
        self.calls += 1
        if self.calls == 1:  # optimizer state and buffers come to life
            return self._as_usual(flat, spec, tensors)
        if self.captured is None or signature != self.signature:
            return self._record(flat, spec, tensors, signature)
        if self.calls == 3 or self.calls % self.check_every == 0:
            return self._check(flat, spec, tensors, signature)
        return self._replay(tensors)

    def _as_usual(self, flat: list[Any], spec: Any, tensors: list[torch.Tensor]) -> Any:
        args, kwargs = tree_unflatten(_with(flat, tensors), spec)
        out = self.step(*args, **kwargs)
        _C.sync(False)
        return _detached(out)

    def _record(
        self, flat: list[Any], spec: Any, tensors: list[torch.Tensor], signature: Any
    ) -> Any:
        args, kwargs = tree_unflatten(_with(flat, tensors), spec)
        recording = _C.Capture(tensors)
        try:
            with no_cuts():
                out = _detached(self.step(*args, **kwargs))
            flat_out, out_spec = tree_flatten(out)
            found = [x if isinstance(x, torch.Tensor) else None for x in flat_out]
            self.captured = recording.finish(found)
        finally:
            recording.end()
        self.signature, self.results = signature, (flat_out, out_spec)
        return out

    def _check(self, flat: list[Any], spec: Any, tensors: list[Any], signature: Any) -> Any:
        """Records the step once more, for real, and compares."""
        before = self.captured
        out = self._record(flat, spec, tensors, signature)
        why = before.difference(self.captured)
        if why and self.on_change == "raise":
            self.reset()
            raise RuntimeError(
                f"the captured step {_name(self.step)} changed: {why}\n"
                "  this call ran the step as it is now; calls before it replayed the old one\n"
                "  try: give what changes to the step as a tensor argument; an optimizer that "
                "counts its steps (Adam, ...) keeps the count on the device with fused=True or "
                'capturable=True; or capture(step, on_change="recapture")'
            )
        return out

    def _replay(self, tensors: list[torch.Tensor]) -> Any:
        flat_out, out_spec = self.results
        made = self.captured.call(tensors)
        flat = [
            m if isinstance(x, torch.Tensor) else x for m, x in zip(made, flat_out, strict=True)
        ]
        return tree_unflatten(flat, out_spec)


def _arguments(flat: list[Any]) -> tuple[list[torch.Tensor], tuple[Any, ...]]:
    """The tensors among the arguments, on the device; and what a program was captured for."""
    tensors = []
    signature: list[Any] = []
    for x in flat:
        if isinstance(x, torch.Tensor):
            t = x.detach() if x.device.type == "xla" else x.detach().to("xla")
            t = t.clone() if _C.state(t) == "view" else t
            tensors.append(t)
            signature.append((t.dtype, t.shape, t.stride(), _sharding(t)))
        else:
            signature.append(x)
    signature += [torch.is_grad_enabled(), torch.is_autocast_enabled("xla")]
    return tensors, tuple(signature)


def _sharding(t: torch.Tensor) -> Any:
    """Something to compare: another sharding needs another program."""
    found = _C.sharding_of(t)[0] if _C.any_sharding() else None
    return None if found is None else (tuple(found.devices), found.text)


def _with(flat: list[Any], tensors: list[torch.Tensor]) -> list[Any]:
    given = iter(tensors)
    return [next(given) if isinstance(x, torch.Tensor) else x for x in flat]


def _detached(out: Any) -> Any:
    flat, spec = tree_flatten(out)
    return tree_unflatten([x.detach() if isinstance(x, torch.Tensor) else x for x in flat], spec)


def capture(
    step: Callable[..., Any] | None = None, *, check_every: int = 100, on_change: str = "raise"
) -> Any:
    """Makes of a whole step (forward, backward, optimizer) a program that is replayed.

    The first two calls run `step` as usual; the second is captured: from then on a call launches
    its program on the buffers that its tensors (parameters, optimizer state, gradients) own now,
    and none of the step's Python runs. Random numbers go on: each replay draws new ones, those that
    the step would have drawn. Tensor arguments are inputs of the program; another shape, dtype or
    value of a plain Python argument captures again.

    What Python computes in the step is fixed: a learning rate, a counter, a print. The third call
    and each `check_every`-th run the step again as it is and compare: where it records another
    program or another number, a RuntimeError names it, or, with `on_change="recapture"`, the new
    step replaces the old one. A learning rate that is a tensor may change at any time; an optimizer
    that counts its steps keeps the count on the device with `fused=True` or `capturable=True`.

    Raises ValueError for another `on_change`; RuntimeError at the line where a step reads a value.
    """
    if on_change not in ("raise", "recapture"):
        raise ValueError(f'on_change is "raise" or "recapture", found {on_change!r}')
    if step is None:
        return functools.partial(capture, check_every=check_every, on_change=on_change)
    return CapturedStep(step, check_every, on_change)
