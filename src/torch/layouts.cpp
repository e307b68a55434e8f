#include "torch/layouts.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/_pin_memory_native.h>

#include "base/text.h"
#include "torch/errors.h"
#include "torch/schema.h"

namespace tp::torch_room {
namespace {

struct Layout {
  const char *what, *instead;
};
constexpr Layout kSparse{
    "sparse tensors",
    "Embedding and EmbeddingBag: sparse=False (its gradient is dense, and only the rows that are "
    "looked up are not zero); else .to_dense(), or keep the sparse tensor on the CPU"};
constexpr Layout kNested{"nested tensors of the strided layout",
                         "torch.nested with layout=torch.jagged, or a padded tensor and a mask "
                         "(torch.nested.to_padded_tensor on the CPU)"};
constexpr Layout kQuantized{"quantised tensors",
                            ".dequantize() before the move, or keep the module on the CPU"};
constexpr Layout kMkldnn{"tensors of layout mkldnn", "leave them dense: the plugin lays them out"};

[[noreturn]] void fail_for(const Layout& l) {
  fail(Code::kNotImplemented, cat("device xla has dense tensors only, no ", l.what), l.instead);
}

template <const Layout& layout>
void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  guarded([] { fail_for(layout); }, [&] { return display(op.operator_name()); });
}

template <const Layout& layout>
torch::CppFunction refusal() {
  return torch::CppFunction::makeFromBoxedFunction<&refuse<layout>>();
}

// What makes such a tensor of dense ones, before anything is read.
constexpr const char* kToSparse[] = {"_to_sparse",     "_to_sparse.sparse_dim", "_to_sparse_csr",
                                     "_to_sparse_csc", "_to_sparse_bsr",        "_to_sparse_bsc"};
constexpr const char* kCompressed[] = {"_sparse_compressed_tensor_unsafe",
                                       "_sparse_csr_tensor_unsafe", "_sparse_csc_tensor_unsafe",
                                       "_sparse_bsr_tensor_unsafe", "_sparse_bsc_tensor_unsafe"};
constexpr const char* kToNested[] = {"_nested_tensor_from_tensor_list", "_nested_tensor_from_mask",
                                     "_nested_view_from_buffer", "_nested_from_padded"};
constexpr const char* kToQuantized[] = {"quantize_per_tensor", "quantize_per_tensor.tensor_qparams",
                                        "quantize_per_channel", "quantize_per_tensor_dynamic"};

at::Tensor pin_memory(const at::Tensor& self, std::optional<at::Device> device) {
  TORCH_CHECK(device || at::getAccelerator(false),
              "Cannot access accelerator device when none is available.\n"
              "  device xla has no pinned host memory: a plugin copies from ordinary memory.\n"
              "  try: leave pin_memory() out, .to(\"xla\") is asynchronous all the same");
  return at::native::_pin_memory(self, device);
}

}  // namespace

void register_beside_layouts(torch::Library& cpu, torch::Library& quantized) {
  cpu.impl("_pin_memory", TORCH_FN(pin_memory));
  // PyTorch's own copy makes a tensor like `self` and does not look at the device.
  quantized.impl("_to_copy", refusal<kQuantized>());
}

void register_layouts(torch::Library& m, torch::Library& autograd) {
  for (torch::Library* l : {&m, &autograd})
    for (const char* name : kCompressed) l->impl(name, refusal<kSparse>());
  for (const char* name : kToSparse) m.impl(name, refusal<kSparse>());
  for (const char* name : kToNested) m.impl(name, refusal<kNested>());
  for (const char* name : kToQuantized) m.impl(name, refusal<kQuantized>());
  m.impl("to_mkldnn", refusal<kMkldnn>());
}

void register_foreign_layout(torch::Library& m, c10::DispatchKey key) {
  m.fallback(key == c10::DispatchKey::NestedTensorXLA ? refusal<kNested>()
             : key == c10::DispatchKey::QuantizedXLA  ? refusal<kQuantized>()
                                                      : refusal<kSparse>());
}

}  // namespace tp::torch_room
