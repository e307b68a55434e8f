"""Exported programs of unknown sizes: torch_pjrt exports programs of known ones."""

from .._names import later
from ..utils.stablehlo_test_utils import wrap_func_as_nn_module

_INSTEAD = "torch.export of one size, and torch_pjrt.export"
_NAMES = (
    "call_function", "decompose_dynamic_native_group_norm", "decompose_dynamic_native_layer_norm",
    "decompose_dynamic_shape_select", "decompose_split_with_sizes", "dynamic_unsqueeze_to_view",
    "flatten_embedding_indices_tensor", "native_group_norm_impl", "native_group_norm_pattern",
    "native_layer_norm_impl", "native_layer_norm_pattern",
    "process_exported_program_with_symbolic_input", "remove_no_op_slice",
    "replace_dynamic_expand_with_xla_op", "replace_dynamic_view_with_xla_op",
)  # fmt: skip
globals().update(
    {n: later(f"experimental.unbounded_dynamism_export.{n}", _INSTEAD) for n in _NAMES}
)
__all__ = [*_NAMES, "exported_program_has_symbolic_input_shape", "wrap_func_as_nn_module"]


def exported_program_has_symbolic_input_shape(exported_model: object) -> bool:
    """Whether an input has a size that is not a number."""
    graph = exported_model.graph_module.graph  # type: ignore[attr-defined]
    values = (n.meta.get("val") for n in graph.nodes if n.op == "placeholder")
    return any(not isinstance(s, int) for v in values for s in getattr(v, "shape", ()))
