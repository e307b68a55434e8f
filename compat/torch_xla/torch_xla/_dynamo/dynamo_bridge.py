"""A graph and its arguments in, what launches its program out."""

import os
from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt._compile import CompiledFunction

from .. import _counts
from .._names import later, later_class
from ..utils.buffer_donor_context import alias_with_buffer_donor_config

__all__ = [
    "Deduper", "GraphInputMatcher", "InputCollector", "NoneRemover", "SpecialReturnHandler",
    "UnsupportedNodesCollector", "XLAConstructorMoverPass", "alias_with_buffer_donor_config",
    "dynamo_debug", "extract_compiled_graph", "extract_compiled_graph_helper",
    "extract_graph_helper", "extract_internal", "get_fallback_ops", "is_xla_tensor",
    "partition_fx_graph_for_cpu_fallback", "ptxla_debug",
]  # fmt: skip

dynamo_debug = os.environ.get("XLA_DYNAMO_DEBUG", "") == "1"
ptxla_debug = os.environ.get("PT_XLA_DEBUG", "") == "1"


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "xla"


def extract_compiled_graph(xla_model: torch.fx.GraphModule, xla_args: Any) -> Callable[..., Any]:
    """Compiles at the first call; the result takes the graph's arguments."""
    _counts.add("DynamoExtractCompiledGraph")
    function = CompiledFunction(xla_model, "extract_compiled_graph")
    output = next(n for n in reversed(xla_model.graph.nodes) if n.op == "output")
    asked = output.args[0]

    def run(*args: Any) -> Any:
        out = function(list(args))
        if not isinstance(out, list):
            return out
        if not isinstance(asked, tuple | list):
            return out[0]
        return tuple(out) if isinstance(asked, tuple) else out

    return run


def extract_internal(xla_model: torch.fx.GraphModule) -> Callable[..., Any]:
    return extract_compiled_graph(xla_model, [])


extract_compiled_graph_helper = extract_compiled_graph


class NoneRemover:
    """Takes the Nones out of a list or tuple, and puts them back."""

    def __init__(self) -> None:
        self.none_poslist: list[int] = []

    def remove_nones(self, value: Any) -> Any:
        """Of a list in place, of a tuple a new one."""
        self.none_poslist = [i for i, x in enumerate(value) if x is None]
        kept = [x for x in value if x is not None]
        if isinstance(value, list):
            value[:] = kept
            return value
        return tuple(kept)

    def add_nones(self, value: Any) -> Any:
        full = list(value)
        for i in self.none_poslist:
            full.insert(i, None)
        if isinstance(value, list):
            value[:] = full
            return value
        return tuple(full)


class Deduper:
    """The same for what comes more than once."""

    def __init__(self) -> None:
        self.permute_for_orig: list[int] | None = None

    def dedup(self, values: list[Any]) -> list[Any]:
        places: dict[int, int] = {}
        unique = []
        for x in values:
            if id(x) not in places:
                places[id(x)] = len(unique)
                unique.append(x)
        self.permute_for_orig = (
            [places[id(x)] for x in values] if len(unique) < len(values) else None
        )
        return unique

    def recover(self, values: list[Any]) -> list[Any]:
        if self.permute_for_orig is None:
            return values
        return [values[i] for i in self.permute_for_orig]


class UnsupportedNodesCollector(torch.fx.Interpreter):
    """Ops that a run of the graph leaves to the CPU."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self._found: list[torch.fx.Node] = []

    def run_node(self, n: torch.fx.Node) -> Any:
        before = set(get_fallback_ops())
        counts = {k: _counts.counters().get(k, 0) for k in before}
        out = super().run_node(n)
        for op in get_fallback_ops():
            if _counts.counters()[op] > counts.get(op, 0) and n.op not in ("placeholder", "output"):
                self._found.append(n)
                break
        return out

    def get_unsupported_nodes(self) -> list[torch.fx.Node]:
        return self._found


def get_fallback_ops() -> list[str]:
    """Ops that ran on the CPU so far."""
    from .. import _XLAC

    return _XLAC._get_executed_fallback_ops()


_INSTEAD = "torch.compile(backend='openxla'): recording and matching is torch_pjrt's"
GraphInputMatcher = later_class("_dynamo.dynamo_bridge.GraphInputMatcher", _INSTEAD)
InputCollector = later_class("_dynamo.dynamo_bridge.InputCollector", _INSTEAD)
SpecialReturnHandler = later_class("_dynamo.dynamo_bridge.SpecialReturnHandler", _INSTEAD)
XLAConstructorMoverPass = later_class("_dynamo.dynamo_bridge.XLAConstructorMoverPass", _INSTEAD)
extract_graph_helper = later("_dynamo.dynamo_bridge.extract_graph_helper", _INSTEAD)


def partition_fx_graph_for_cpu_fallback(
    xla_model: Any, xla_args: Any, all_xla_args: Any = None, all_xla_args_tensor_only: Any = None
) -> Any:
    """The graph as it is: CompiledFunction cuts it where it has to."""
    return xla_model
