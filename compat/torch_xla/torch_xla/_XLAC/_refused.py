"""Names that raise NotImplementedError, with what to use instead."""

_BUILD = "torch_xla.core.xla_builder.Op: ops are recorded, there is no builder"
_REGION = (
    "torch_pjrt.manual.region(mesh, in_specs, out_specs), and the collectives of torch_pjrt.manual"
)
_SHAPES = "static shapes"
_PROCESS = "torch.distributed: init_process_group('xla') and its functions"
_JAX = "a function of PyTorch's: kernels of jax are not run"
NAMES = {
    "IrValue": "torch_pjrt.graph.of(tensors)",
    "PjRtPlugin": "torch_xla.experimental.plugins.DevicePlugin",
    "XlaBuilder": _BUILD, "XlaComputation": _BUILD, "XlaOp": _BUILD,
    "_get_all_reduce_token": _PROCESS, "_set_all_reduce_token": _PROCESS,
    "_get_tensors_xla_device_data_node": "torch_pjrt.graph.of(tensors)",
    "_get_xla_tensors_hlo_proto": "torch_pjrt.export.stablehlo(...).bytes",
    "_mark_manual_sharding": _REGION, "_spmd_full_to_shard_shape": _REGION,
    "_spmd_shard_to_full_shape": _REGION, "_xla_spmd_all_reduce": _REGION,
    "_xla_spmd_reduce_scatter": _REGION,
    "_run_cached_graph": "torch.compile(backend='openxla')",
    "_run_stablehlo": "torch_pjrt.export.load(folder)",
    "_xla_computation_text": _BUILD, "_xla_op_build": _BUILD, "_xla_op_builder": _BUILD,
    "_xla_op_computation_from_module_proto": _BUILD, "_xla_op_create": _BUILD,
    "_xla_op_create_builder": _BUILD, "_xla_op_param": _BUILD, "_xla_op_shape": _BUILD,
    "_xla_op_tensor_shape": _BUILD,
    "_xla_custom_call": _JAX, "_xla_tpu_custom_call": _JAX,
    "_xla_register_custom_call_target": _JAX,
    "_xla_dynamic_expand": _SHAPES, "_xla_dynamic_view": _SHAPES,
    "_xla_mark_tensor": "torch_pjrt.scope(name): it names the ops inside",
    "_xla_all_gather_coalesced": _PROCESS, "_xla_all_gather_coalesced_out": _PROCESS,
    "_xla_all_gather_out": _PROCESS, "_xla_reduce_scatter_coalesced": _PROCESS,
    "_xla_reduce_scatter_coalesced_out": _PROCESS, "_xla_reduce_scatter_out": _PROCESS,
    "_xla_cast_int4": "int8",
    "_dynamic_shape_detector_end_session": "torch_pjrt.explain(): recompiles and their reasons",
    "_dynamic_shape_detector_get_max_different_graphs": "torch_pjrt.explain()",
    "_dynamic_shape_detector_remove_session": "torch_pjrt.explain()",
    "_dynamic_shape_detector_set_max_different_graphs": "torch_pjrt.explain()",
    "_dynamic_shape_detector_start_session": "torch_pjrt.explain()",
    "_set_xla_custom_op_name_prefix": "torch_pjrt.scope(name)",
    "_register_pjrt_plugin": "an entry point of the group torch_pjrt.plugins",
}  # fmt: skip
