"""The door of torch.compile: a graph and its arguments in, what launches its program out."""

from collections.abc import Callable
from typing import Any

import torch

from torch_pjrt._compile import CompiledFunction


def extract_compiled_graph(
    xla_model: torch.fx.GraphModule, xla_args: list[Any]
) -> Callable[..., Any]:
    """Compiles at the first call; the result takes the graph's arguments."""
    function = CompiledFunction(xla_model, "extract_compiled_graph")
    single = not isinstance(xla_model.graph.output_node().args[0], tuple | list)

    def run(*args: Any) -> Any:
        out = function(list(args))
        return out[0] if single and isinstance(out, list) else out

    return run


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "xla"
