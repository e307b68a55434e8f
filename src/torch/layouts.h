// Tensors that device xla has not: sparse, nested, quantised, mkldnn. Every way to one ends in one
// error that says what to use instead. Any thread.
#pragma once
#include <torch/library.h>

namespace tp::torch_room {

// `autograd`: for PyTorch's composites, which come before the device's kernels.
void register_layouts(torch::Library& m, torch::Library& autograd);
// For a key of tensors that the device has not.
void register_foreign_layout(torch::Library& m, c10::DispatchKey key);
// Of the CPU's own tensors: what would stay there without a word, or raise without a way out.
void register_beside_layouts(torch::Library& cpu, torch::Library& quantized);

}  // namespace tp::torch_room
