"""Where torch_xla keeps it."""

from ..core.dynamo_bridge import extract_compiled_graph, is_xla_tensor  # noqa: F401
