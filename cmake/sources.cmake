# Every source file of the project, a list a room (no globs: a build sees exactly what is listed here).
# Adding a file: add its line to its room's list.
set(TP_BASE src/base/cache_place.cpp src/base/error.cpp src/base/flags.cpp src/base/hash.cpp)
set(TP_PROBE src/probe/probe.cpp)
set(TP_IR src/ir/attrs.cpp src/ir/dtype.cpp src/ir/graph.cpp src/ir/location.cpp src/ir/node.cpp src/ir/type.cpp)
set(TP_HLO src/hlo/builder.cpp src/hlo/builder_ops.cpp)
set(TP_SHARD)
set(TP_OPS
    src/ops/activation.cpp
    src/ops/amp.cpp
    src/ops/args.cpp
    src/ops/axis.cpp
    src/ops/batch_norm.cpp
    src/ops/compare.cpp
    src/ops/conv.cpp
    src/ops/conv_shape.cpp
    src/ops/creation.cpp
    src/ops/ctc.cpp
    src/ops/elementwise_binary.cpp
    src/ops/elementwise_ternary.cpp
    src/ops/elementwise_unary.cpp
    src/ops/embedding.cpp
    src/ops/grid_sample.cpp
    src/ops/helpers.cpp
    src/ops/host.cpp
    src/ops/index.cpp
    src/ops/index_put.cpp
    src/ops/indexing.cpp
    src/ops/kernel_dtypes.cpp
    src/ops/loss.cpp
    src/ops/matmul.cpp
    src/ops/norm.cpp
    src/ops/pad.cpp
    src/ops/pool.cpp
    src/ops/pool_avg.cpp
    src/ops/pool_fractional.cpp
    src/ops/pool_max.cpp
    src/ops/pool_types.cpp
    src/ops/random.cpp
    src/ops/random_bits.cpp
    src/ops/reduction.cpp
    src/ops/reduction_index.cpp
    src/ops/scan.cpp
    src/ops/scatter.cpp
    src/ops/search.cpp
    src/ops/shape.cpp
    src/ops/softmax.cpp
    src/ops/sort.cpp
    src/ops/strided_view.cpp
    src/ops/table.cpp
    src/ops/upsample.cpp
    src/ops/view.cpp
    src/ops/view_copy.cpp
    src/ops/view_dtype.cpp
    src/ops/view_plan.cpp)
set(TP_LOWER src/lower/lower.cpp)
set(TP_PJRT
    src/pjrt/api.cpp
    src/pjrt/buffer.cpp
    src/pjrt/client.cpp
    src/pjrt/compile_options.cpp
    src/pjrt/custom_call.cpp
    src/pjrt/device.cpp
    src/pjrt/event.cpp
    src/pjrt/executable.cpp
    src/pjrt/ffi.cpp
    src/pjrt/plugin.cpp)
set(TP_CLIENT
    src/client/environment.cpp
    src/client/host_call.cpp
    src/client/pjrt_client.cpp
    src/client/pjrt_objects.cpp
    src/client/pjrt_transfer.cpp
    src/client/pjrt_types.cpp
    src/client/registry.cpp
    src/client/registry_table.cpp
    src/client/signature.cpp)
set(TP_EXEC
    src/exec/cache_file.cpp
    src/exec/cache_folder.cpp
    src/exec/disk_cache.cpp
    src/exec/executor.cpp
    src/exec/fill.cpp
    src/exec/key.cpp
    src/exec/program_cache.cpp)
set(TP_CORE
    ${TP_BASE} ${TP_PROBE} ${TP_IR} ${TP_HLO} ${TP_SHARD} ${TP_OPS} ${TP_LOWER} ${TP_PJRT}
    ${TP_CLIENT} ${TP_EXEC})

# The only two rooms that see torch.
set(TP_TORCH
    src/torch/autocast.cpp
    src/torch/backend.cpp
    src/torch/errors.cpp
    src/torch/factories.cpp
    src/torch/frames.cpp
    src/torch/host_call.cpp
    src/torch/host_check.cpp
    src/torch/host_op.cpp
    src/torch/meta_rows_0.cpp
    src/torch/meta_rows_1.cpp
    src/torch/meta_rows_2.cpp
    src/torch/random.cpp
    src/torch/recorder.cpp
    src/torch/register.cpp
    src/torch/runtime.cpp
    src/torch/schema.cpp
    src/torch/tensor.cpp
    src/torch/typed.cpp
    src/torch/views.cpp)
set(TP_BIND src/bind/cache.cpp src/bind/module.cpp src/bind/python.cpp)

set(TP_FAKEPLUGIN
    tests/fakeplugin/fakeplugin.cpp
    tests/fakeplugin/objects.cpp
    tests/fakeplugin/program.cpp
    tests/fakeplugin/programs.cpp
    tests/fakeplugin/script.cpp)
set(TP_HARNESS tests/core/harness.cpp tests/core/harness_run.cpp)
set(TP_CORE_TESTS
    tests/core/args_test.cpp
    tests/core/builder_test.cpp
    tests/core/cache_file_test.cpp
    tests/core/cache_folder_test.cpp
    tests/core/cache_off.cpp
    tests/core/client_test.cpp
    tests/core/conv_ops_test.cpp
    tests/core/disk_cache_test.cpp
    tests/core/executor_test.cpp
    tests/core/fakeplugin_test.cpp
    tests/core/flags_test.cpp
    tests/core/graph_test.cpp
    tests/core/index_ops_test.cpp
    tests/core/ir_test.cpp
    tests/core/key_test.cpp
    tests/core/lower_test.cpp
    tests/core/lru_test.cpp
    tests/core/norm_ops_test.cpp
    tests/core/pjrt_test.cpp
    tests/core/pool_ops_test.cpp
    tests/core/program_cache_test.cpp
    tests/core/registry_test.cpp
    tests/core/small_vector_test.cpp
    tests/core/sort_ops_test.cpp
    tests/core/type_test.cpp
    tests/core/view_ops_test.cpp)
