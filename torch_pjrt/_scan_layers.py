"""Equal blocks as one loop: the body is recorded once, so that depth costs no compile time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils import stateless
from torch.utils import _pytree as pytree

from ._control import scan

__all__ = ["scan_layers"]

_PLAIN = (bool, int, float, str, type(None), torch.dtype)


def scan_layers(
    layers: Sequence[torch.nn.Module],
    x: Any,
    *args: Any,
    ignore: Sequence[str] = (),
    **kwargs: Any,
) -> Any:
    """`for layer in layers: x = layer(x, *args, **kwargs)` as one loop of the program.

    The layers are equal but for the values of their parameters and buffers: same classes, shapes
    and dtypes, same settings. `x` is a tensor, or nested tuples, lists and dicts of tensors, that
    each layer gives back with the shapes and dtypes that it was given. Weights are stacked in each
    step, gradients go back to each layer's own. Random numbers are those of the plain loop.

    Attributes named in `ignore` may differ; those of the first layer are used. Hooks of the first
    layer see stand-ins, once; those of others do not run. Where `x` is not of device xla, inside
    torch.compile, and for fewer than two layers it is the plain loop.

    Raises ValueError, naming what differs, for layers that are not equal; RuntimeError at the line
    that reads a value, or writes one that is not its own (batch norm's running statistics).
    """
    layers = list(layers)
    leaves, spec = pytree.tree_flatten(x)
    plain = len(layers) < 2 or not leaves or not all(_on_xla(t) for t in leaves)
    if plain or torch.compiler.is_compiling():
        for layer in layers:
            x = layer(x, *args, **kwargs)
        return x
    _check_equal(layers, frozenset(ignore))
    return _Loop(layers, spec, (args, kwargs)).run(leaves)


class _Loop:
    """The layers as a scan over their stacked weights."""

    def __init__(self, layers: Sequence[torch.nn.Module], spec: Any, more: Any) -> None:
        self.layers, self.spec, self.weights = layers, spec, _Weights(layers)
        self.more, self.more_spec = pytree.tree_flatten(more)

    def run(self, leaves: list[torch.Tensor]) -> Any:
        self.carried = len(leaves)
        outs = scan(
            f"scan_layers of {type(self.layers[0]).__name__}",
            self.body,
            leaves,
            self.weights.stacked(),
            [*self.weights.shared.values(), *(t for t in self.more if _on_xla(t))],
            length=len(self.layers),
            around=self.with_weights,
        )
        return pytree.tree_unflatten(outs, self.spec)

    def body(self, *stand_ins: torch.Tensor) -> list[torch.Tensor]:
        carried, rest = stand_ins[: self.carried], stand_ins[self.carried :]
        own, invariants = self.weights.split(rest)
        now = iter(invariants[len(self.weights.shared) :])
        inner = [next(now) if _on_xla(t) else t for t in self.more]
        args, kwargs = pytree.tree_unflatten(inner, self.more_spec)
        state = pytree.tree_unflatten(list(carried), self.spec)
        out = torch.func.functional_call(self.layers[0], own, (state, *args), kwargs)
        return _same_structure(out, self.spec)

    def with_weights(self, *rest: torch.Tensor) -> Any:
        """The first layer has these weights: a checkpoint in it runs it again."""
        return stateless._reparametrize_module(self.layers[0], self.weights.split(rest)[0])


def _on_xla(t: Any) -> bool:
    return isinstance(t, torch.Tensor) and t.device.type == "xla"


def _same_structure(out: Any, spec: Any) -> list[torch.Tensor]:
    flat, found = pytree.tree_flatten(out)
    if found != spec:
        raise RuntimeError(
            "scan_layers: a layer has to give back what it is given, "
            f"a value of structure {spec}; it gave one of {found}"
        )
    return list(flat)


class _Weights:
    """Parameters and buffers by name: those that all layers share, and those to be stacked."""

    def __init__(self, layers: Sequence[torch.nn.Module]) -> None:
        each = [
            dict(layer.named_parameters(remove_duplicate=False))
            | dict(layer.named_buffers(remove_duplicate=False))
            for layer in layers
        ]
        first = each[0]
        self.shared = {n: t for n, t in first.items() if all(w[n] is t for w in each)}
        self.own = {n: [w[n] for w in each] for n in first if n not in self.shared}
        # A parameter under two names of one layer is one tensor.
        self.names: dict[int, str] = {}
        self.same = {n: self.names.setdefault(id(w[0]), n) for n, w in self.own.items()}

    def stacked(self) -> list[torch.Tensor]:
        """Of each that is not shared: [layers, ...]."""
        return [torch.stack(w) for n, w in self.own.items() if self.same[n] == n]

    def split(self, rest: Sequence[torch.Tensor]) -> tuple[dict[str, torch.Tensor], list[Any]]:
        """The first layer's tensors by name, and what is left of `rest`."""
        names = [n for n in self.own if self.same[n] == n]
        now = dict(zip(names, rest, strict=False))
        invariants = list(rest[len(names) :])
        own = {n: now[self.same[n]] for n in self.own}
        return own | dict(zip(self.shared, invariants, strict=False)), invariants


def _check_equal(layers: Sequence[torch.nn.Module], ignore: frozenset[str]) -> None:
    first = dict(_facts(layers[0], ignore))
    for i, layer in enumerate(layers[1:], 1):
        facts = dict(_facts(layer, ignore))
        for key in (*first, *facts):
            if first.get(key) != facts.get(key):
                raise ValueError(
                    f"scan_layers: layers 0 and {i} differ in {key}: "
                    f"{first.get(key)} and {facts.get(key)}\n"
                    "  try: the plain loop over the layers, or ignore= for an attribute that "
                    "changes nothing"
                )


def _facts(layer: torch.nn.Module, ignore: frozenset[str]) -> list[tuple[str, Any]]:
    """What has to be equal, by name."""
    facts: list[tuple[str, Any]] = []
    for name, module in layer.named_modules(remove_duplicate=False):
        at = name + "." if name else ""
        facts.append((f"the class of {name or 'the layer'}", type(module).__name__))
        facts += [
            (at + k, v)
            for k, v in vars(module).items()
            if k not in ignore and _is_setting(v) and not k.startswith("_forward_")
        ]
        tensors: list[Callable[..., Any]] = [module.named_parameters, module.named_buffers]
        for named in tensors:
            for n, t in named(recurse=False, remove_duplicate=False):
                facts.append((at + n, (tuple(t.shape), t.dtype, t.requires_grad)))
    return facts


def _is_setting(v: Any) -> bool:
    if isinstance(v, tuple):
        return all(map(_is_setting, v))
    return isinstance(v, _PLAIN)
