"""One call of an op under PyTorch's modes and transforms: what conformance.py tries besides calls.

Each function takes an op and a sample, on the CPU or on the device, and gives the tensors to
compare; where eager raises, the form does not fit the sample.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from eager import mapped, tensors_in
from test_ops import ends, run, weights

Form = Callable[[Any, Any], list[torch.Tensor]]


def call(op: Any, s: Any, f: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    x, args, kwargs = mapped([s.input, s.args, s.kwargs], f)
    return op(x, *args, **kwargs)


def inference(op: Any, s: Any) -> list[torch.Tensor]:
    """Ordinary tensors under torch.inference_mode."""
    with torch.inference_mode():
        return run(op, s, grad=False)


def double_backward(op: Any, s: Any) -> list[torch.Tensor]:
    made, wanted = ends(op, s)
    if not made or not wanted:
        return []
    given = [weights(t).requires_grad_() for t in made]
    first = torch.autograd.grad(made, wanted, given, create_graph=True, allow_unused=True)
    first = [g for g in first if g is not None and g.requires_grad]
    if not first:
        return []
    into = wanted + given
    found = torch.autograd.grad(first, into, [weights(g) for g in first], allow_unused=True)
    return [g for g in found if g is not None]


def forward_mode(op: Any, s: Any) -> list[torch.Tensor]:
    def dual(t: torch.Tensor) -> torch.Tensor:
        t = t.detach()
        exact = not (t.is_floating_point() or t.is_complex())
        return t if exact else forward_ad.make_dual(t, weights(t))

    with forward_ad.dual_level():
        parts = [forward_ad.unpack_dual(t) for t in tensors_in(call(op, s, dual))]
        return [t for pair in parts for t in pair if t is not None]


def vmapped(op: Any, s: Any) -> list[torch.Tensor]:
    if not isinstance(s.input, torch.Tensor):
        return []
    two = torch.stack([s.input, s.input])
    f = torch.func.vmap(lambda x: op(x, *s.args, **s.kwargs), randomness="different")
    return list(tensors_in(f(two)))


def lazy_bits(op: Any, s: Any) -> list[torch.Tensor]:
    """Lazily conjugated or negated operands."""

    def bits(t: torch.Tensor) -> torch.Tensor:
        if t.is_complex():
            return t.conj()
        return torch._neg_view(t) if t.is_floating_point() else t

    return [t.resolve_conj().resolve_neg() for t in tensors_in(call(op, s, bits))]


def traced(op: Any, s: Any) -> list[torch.Tensor]:
    """Through torch.jit.trace."""
    operands = list(tensors_in([s.input, s.args, s.kwargs]))
    if not operands:
        return []

    def f(*xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest = iter(xs)
        return tuple(tensors_in(call(op, s, lambda _: next(rest))))

    found = torch.jit.trace(f, tuple(operands), check_trace=False)(*operands)
    return list(tensors_in(found))


FORMS: dict[str, Form] = {
    "inference": inference,
    "jvp": forward_mode,
    "vmap": vmapped,
    "lazy bits": lazy_bits,
    "trace": traced,
}
