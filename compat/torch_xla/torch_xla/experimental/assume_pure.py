"""Functions whose Python runs once for each kind of arguments."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_pjrt import _compile

from .._internal.jax_workarounds import maybe_get_jax, maybe_get_torchax, requires_jax
from .._names import later

__all__ = [
    "PureModule", "assume_pure", "assume_pure_torch", "j2t_autograd", "make_fake_inputs",
    "maybe_get_jax", "maybe_get_torchax", "prepare_computation_inputs", "requires_jax",
]  # fmt: skip

_XLA_COMPUTATION_CACHE: dict[Any, Any] = {}
_NO_JAX = "a function of PyTorch's: torch_pjrt brings no jax"
j2t_autograd = later("experimental.assume_pure.j2t_autograd", _NO_JAX)


class _Traced:
    """`fn`, traced for one kind of arguments, as programs for forward and backward."""

    def __init__(self, fn: Callable[..., Any], spec: Any, fixed: dict[int, Any]) -> None:
        self.fn, self.spec, self.fixed = fn, spec, fixed
        self.out_spec: Any = None
        name = getattr(fn, "__name__", type(fn).__name__)
        from functorch.compile import aot_function

        self.call = aot_function(
            self._flat,
            fw_compiler=functools.partial(_compile._compile, name),
            bw_compiler=functools.partial(_compile._compile, f"backward of {name}"),
        )

    def _flat(self, *tensors: torch.Tensor) -> list[Any]:
        flat = list(tensors)
        for i, x in self.fixed.items():
            flat.insert(i, x)
        args, kwargs = pytree.tree_unflatten(flat, self.spec)
        out, self.out_spec = pytree.tree_flatten(self.fn(*args, **kwargs))
        return out

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        return pytree.tree_unflatten(list(self.call(*tensors)), self.out_spec)


def _inside_another() -> bool:
    """Whether a function is being traced already: it takes this one in."""
    modes = torch.utils._python_dispatch._get_current_dispatch_mode()
    return (
        torch.compiler.is_compiling()
        or modes is not None
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def _kind(x: torch.Tensor) -> Any:
    return (tuple(x.shape), x.stride(), x.dtype, x.device, x.requires_grad)


def assume_pure(
    fn: Callable[..., Any] | None = None, *, add_rng_seed_argument: bool = False
) -> Any:
    """`fn` of tensors in nested containers, without effects: its Python runs once for each kind.

    Random numbers are drawn anew at each call. With `add_rng_seed_argument` the result takes a
    keyword `rng_seed`, by which they are drawn: AssertionError without it.
    """
    if fn is None:
        return functools.partial(assume_pure, add_rng_seed_argument=add_rng_seed_argument)
    made: dict[Any, _Traced] = {}

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if add_rng_seed_argument:
            seed = kwargs.pop("rng_seed", None)
            if seed is None:
                raise AssertionError(
                    f"assume_pure: {getattr(fn, '__name__', fn)} draws by a seed: expected the "
                    "keyword rng_seed (add_rng_seed_argument=True)"
                )
            with torch.random.fork_rng(devices=[0], device_type="xla"):
                torch.xla.manual_seed(int(seed))  # type: ignore[attr-defined]
                return run(args, kwargs)
        return run(args, kwargs)

    def run(args: Any, kwargs: Any) -> Any:
        if _inside_another():
            return fn(*args, **kwargs)
        flat, spec = pytree.tree_flatten((args, kwargs))
        fixed = {i: x for i, x in enumerate(flat) if not isinstance(x, torch.Tensor)}
        tensors = [x for x in flat if isinstance(x, torch.Tensor)]
        key = (
            spec, torch.is_grad_enabled(), tuple(map(_kind, tensors)),
            tuple((i, repr(x)) for i, x in fixed.items()),
        )  # fmt: skip
        if key not in made:
            made[key] = _Traced(fn, spec, fixed)
        return made[key](tensors)

    return wrapped


def assume_pure_torch(fn: Callable[..., Any] | None = None, use_cache: bool = False) -> Any:
    """The same."""
    if fn is None:
        return functools.partial(assume_pure_torch, use_cache=use_cache)
    wrapped = assume_pure(fn)
    if use_cache:
        _XLA_COMPUTATION_CACHE.setdefault(fn, wrapped)
    return wrapped


class PureModule(torch.nn.Module):
    """A module whose forward runs once for each kind of arguments."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._module = module
        self._call = assume_pure(
            lambda state, args, kwargs: torch.func.functional_call(module, state, args, kwargs)
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        state = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        return self._call(state, args, kwargs)


def make_fake_inputs(input: Any) -> Any:
    """Of the same shape and dtype, without memory."""
    return pytree.tree_map_only(torch.Tensor, lambda t: torch.empty_like(t, device="meta"), input)


def prepare_computation_inputs(fn_computation: Any, args: Any, kwargs: Any) -> list[Any]:
    """The tensors among the arguments."""
    leaves = pytree.tree_leaves((args, kwargs))
    return [x for x in leaves if isinstance(x, torch.Tensor)]
