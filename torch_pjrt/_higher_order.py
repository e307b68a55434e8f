"""torch's cond, while_loop, scan and map on device xla, as nodes of the graph.

`import torch` loads the operators; ours are added for the keys of the device once somebody uses
dynamo or them. Below autograd a body is recorded (`_control.py`). Gradients of scan and map are our
own; cond's are torch's, which come as another cond; those of while_loop need its number of rounds,
which is read. associative_scan needs nothing: torch makes a logarithm of steps of it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from . import _C
from ._control import branch, scan, while_loop
from ._imports import after_import

__all__ = ["install"]

_XLA = torch._C.DispatchKey.XLA
_AUTOGRAD_XLA = torch._C.DispatchKey.AutogradXLA
_DENSE = torch._C.DispatchKey.CompositeExplicitAutograd


def install() -> None:
    """Registers our kernels as torch's modules are loaded."""
    after_import("torch._higher_order_ops.cond", _install_cond)
    after_import("torch._higher_order_ops.while_loop", _install_while)
    after_import("torch._higher_order_ops.scan", _install_scan)
    after_import("torch._higher_order_ops.map", _install_map)


def _real(*tensors: Any) -> bool:
    """Whether all are tensors of the device, and none stands for one in some tracer."""
    if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    kinds = (torch.Tensor, torch.nn.Parameter)
    return all(type(t) in kinds and t.device.type == "xla" for t in tensors)


def _flat(f: Callable[..., Any]) -> Callable[..., list[Any]]:
    def flat(*args: Any) -> list[Any]:
        return list(pytree.tree_leaves(f(*args)))

    return flat


class _Results:
    """Results of a body of which some are no tensors: those are the same each time."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f, self.spec = f, pytree.tree_flatten(())[1]
        self.others: dict[int, Any] = {}

    def __call__(self, *args: Any) -> list[torch.Tensor]:
        flat, self.spec = pytree.tree_flatten(self.f(*args))
        self.others = {i: x for i, x in enumerate(flat) if not isinstance(x, torch.Tensor)}
        return [x for x in flat if isinstance(x, torch.Tensor)]

    def restored(self, tensors: Sequence[torch.Tensor]) -> Any:
        flat: list[Any] = list(tensors)
        for i, x in self.others.items():
            flat.insert(i, x)
        return pytree.tree_unflatten(flat, self.spec)


def _with_constants(
    f: Callable[..., Any], args: Sequence[Any]
) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """F as a function of those of `args` that are tensors, and those."""
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    if len(tensors) == len(args):
        return f, tensors

    def partial(*given: torch.Tensor) -> Any:
        rest = iter(given)
        return f(*(next(rest) if isinstance(x, torch.Tensor) else x for x in args))

    return partial, tensors


def _install_cond(module: Any) -> None:
    op = module.cond_op
    dense = op.py_kernels[_DENSE]

    def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
        tensors = [x for x in operands if isinstance(x, torch.Tensor)]
        if not isinstance(pred, torch.Tensor) or not _real(pred, *tensors):
            return dense(pred, true_fn, false_fn, operands)
        on_true, on_false = (_Results(_with_constants(f, operands)[0]) for f in (true_fn, false_fn))
        out = branch("torch.cond", pred, on_true, on_false, tensors)
        if on_true.others != on_false.others:  # the predicate chooses between Python numbers
            return dense(pred, true_fn, false_fn, operands)
        return on_true.restored(out)

    op.py_impl(_XLA)(cond)
    op._dispatch_cache.clear()


def _install_while(module: Any) -> None:
    op, stacking = module.while_loop_op, module.while_loop_stack_output_op
    dense, autograd = op.py_kernels[_DENSE], op.py_kernels[torch._C.DispatchKey.Autograd]

    def loop(cond_fn: Any, body_fn: Any, carried: Any, more: Any, **kwargs: Any) -> Any:
        # A carried int is a Python number: torch runs such a loop itself.
        if not _real(*carried, *more):
            return dense(cond_fn, body_fn, carried, more, **kwargs)
        body = _checked(body_fn, carried)
        return tuple(while_loop("torch.while_loop", cond_fn, body, carried, more))

    def with_gradient(cond_fn: Any, body_fn: Any, carried: Any, more: Any, **kwargs: Any) -> Any:
        tensors = (*carried, *more)
        needs = torch.is_grad_enabled() and any(
            isinstance(t, torch.Tensor) and t.requires_grad for t in tensors
        )
        if not needs or not _real(*tensors):
            return autograd(cond_fn, body_fn, carried, more, **kwargs)
        rounds = _rounds(cond_fn, body_fn, carried, more)
        if rounds == 0:
            return tuple(t.clone() for t in carried)
        body = _checked(body_fn, carried)
        return tuple(scan("torch.while_loop", body, carried, (), more, length=rounds))

    def stack(cond_fn: Any, body_fn: Any, carried: Any, more: Any) -> Any:
        if not _real(*carried, *more):
            return stacking.py_kernels[_DENSE](cond_fn, body_fn, carried, more)
        rounds = _rounds(cond_fn, body_fn, carried, more)
        if rounds == 0:
            return tuple(t.unsqueeze(0).clone() for t in carried)
        body = _checked(body_fn, carried)

        def stacked(*args: torch.Tensor) -> list[torch.Tensor]:
            out = body(*args)
            return [*out, *out]

        outs = scan("torch.while_loop", stacked, carried, (), more, length=rounds)
        return tuple(outs[len(carried) :])

    op.py_impl(_XLA)(loop)
    op.py_impl(_AUTOGRAD_XLA)(with_gradient)
    stacking.py_impl(_XLA)(stack)
    op._dispatch_cache.clear()
    stacking._dispatch_cache.clear()


def _checked(body_fn: Any, carried: Sequence[torch.Tensor]) -> Callable[..., list[Any]]:
    def body(*args: torch.Tensor) -> list[Any]:
        out = _flat(body_fn)(*args)
        if len(out) != len(carried):
            raise AssertionError(
                "body_fn should return the same number of elements as carried_inputs, got "
                f"{len(out)} vs {len(carried)}"
            )
        return out

    return body


def _rounds(cond_fn: Any, body_fn: Any, carried: Any, more: Any) -> int:
    """How often the loop runs: a loop that counts, and a read of what it counted."""
    if _C.tracing():
        _C.refuse_trace("it differentiates a while_loop, whose number of rounds is read")
    n = torch.zeros((), dtype=torch.int64, device=carried[0].device)
    with torch.no_grad():
        out = while_loop(
            "torch.while_loop",
            lambda _, *a: cond_fn(*a),
            lambda i, *a: [i + 1, *_checked(body_fn, carried)(*a)],
            [n, *carried],
            more,
        )
    return int(out[0].item())


def _install_scan(module: Any) -> None:
    op = module.scan_op
    dense, autograd = op.py_kernels[_DENSE], op.py_kernels[torch._C.DispatchKey.Autograd]

    def run(combine_fn: Any, init: Any, xs: Any, more: Any) -> Any:
        results = _Results(_flat(_with_constants_at_end(combine_fn, more)))
        tensors = [x for x in more if isinstance(x, torch.Tensor)]
        outs = scan("torch.scan", results, init, xs, tensors, length=xs[0].shape[0])
        return tuple(results.restored(outs))

    def below(combine_fn: Any, init: Any, xs: Any, additional_inputs: Any) -> Any:
        more = [x for x in additional_inputs if isinstance(x, torch.Tensor)]
        known = _real(*init, *xs, *more)
        return (run if known else dense)(combine_fn, init, xs, additional_inputs)

    def with_gradient(combine_fn: Any, init: Any, xs: Any, additional_inputs: Any) -> Any:
        more = [x for x in additional_inputs if isinstance(x, torch.Tensor)]
        known = _real(*init, *xs, *more)
        return (run if known else autograd)(combine_fn, init, xs, additional_inputs)

    op.py_impl(_XLA)(below)
    op.py_impl(_AUTOGRAD_XLA)(with_gradient)
    op._dispatch_cache.clear()


def _with_constants_at_end(f: Callable[..., Any], more: Sequence[Any]) -> Callable[..., Any]:
    """F as a function of tensors, where some of its last arguments are none."""
    kept = sum(isinstance(x, torch.Tensor) for x in more)
    if kept == len(more):
        return f

    def partial(*given: torch.Tensor) -> Any:
        first, rest = given[: len(given) - kept], iter(given[len(given) - kept :])
        return f(*first, *(next(rest) if isinstance(x, torch.Tensor) else x for x in more))

    return partial


def _install_map(module: Any) -> None:
    op = module.map_impl
    dense, autograd = op.py_kernels[_DENSE], op.py_kernels[torch._C.DispatchKey.Autograd]

    def run(f: Any, xs: Any, args: Any) -> Any:
        results = _Results(_with_constants_at_end(f, args))
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        outs = scan("torch.map", results, (), xs, tensors, length=xs[0].shape[0])
        return results.restored(outs)

    def below(f: Any, xs: Any, pos_args: Any) -> Any:
        known = _real(*xs, *(x for x in pos_args if isinstance(x, torch.Tensor)))
        return (run if known else dense)(f, xs, pos_args)

    def with_gradient(f: Any, xs: Any, pos_args: Any) -> Any:
        known = _real(*xs, *(x for x in pos_args if isinstance(x, torch.Tensor)))
        return (run if known else autograd)(f, xs, pos_args)

    op.py_impl(_XLA)(below)
    op.py_impl(_AUTOGRAD_XLA)(with_gradient)
    op._dispatch_cache.clear()
