"""The door of torch.compile, where torch_xla keeps it."""

from .._dynamo.dynamo_bridge import (
    Deduper,
    GraphInputMatcher,
    InputCollector,
    NoneRemover,
    SpecialReturnHandler,
    UnsupportedNodesCollector,
    XLAConstructorMoverPass,
    alias_with_buffer_donor_config,
    dynamo_debug,
    extract_compiled_graph,
    extract_compiled_graph_helper,
    extract_graph_helper,
    extract_internal,
    get_fallback_ops,
    is_xla_tensor,
    partition_fx_graph_for_cpu_fallback,
    ptxla_debug,
)

__all__ = [
    "Deduper", "GraphInputMatcher", "InputCollector", "NoneRemover", "SpecialReturnHandler",
    "UnsupportedNodesCollector", "XLAConstructorMoverPass", "alias_with_buffer_donor_config",
    "dynamo_debug", "extract_compiled_graph", "extract_compiled_graph_helper",
    "extract_graph_helper", "extract_internal", "get_fallback_ops", "is_xla_tensor",
    "partition_fx_graph_for_cpu_fallback", "ptxla_debug",
]  # fmt: skip
