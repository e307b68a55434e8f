#include "torch/view_memory.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "torch/tensor.h"

namespace tp::torch_room {
namespace {

// Is element i of the root where base_stride says, for all i?
bool is_laid_out(const at::Tensor& root, std::span<const int64_t> base_stride) {
  if (root.storage_offset() != 0 || !root.is_non_overlapping_and_dense()) return false;
  for (int64_t d = 0; d < root.dim(); ++d)
    if (root.size(d) != 1 && root.stride(d) != base_stride[static_cast<size_t>(d)]) return false;
  return true;
}

}  // namespace

at::Tensor memory_of(const at::Tensor& root, std::span<const int64_t> base_stride) {
  if (is_laid_out(root, base_stride)) return root.as_strided({root.numel()}, {1}, 0);
  std::vector<int64_t> order(base_stride.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    return base_stride[static_cast<size_t>(x)] > base_stride[static_cast<size_t>(y)];
  });
  return root.permute(order).contiguous().view(-1);  // an expanded root has fewer elements
}

at::Tensor in_elements_of(const at::Tensor& memory, at::ScalarType type) {
  if (memory.scalar_type() == type) return memory;
  auto size = static_cast<int64_t>(c10::elementSize(type)), have = memory.element_size();
  int64_t whole = memory.numel() * have / size * size;
  return memory.narrow(0, 0, whole / have).view(type);
}

at::Tensor read_window(const at::Tensor& root, const Window& w) {
  at::Tensor memory = in_elements_of(memory_of(root, w.base_stride), w.dtype);
  return memory.as_strided(ref_of(w.size), ref_of(w.stride), memory.storage_offset() + w.offset);
}

at::Tensor write_window(const at::Tensor& root, const at::Tensor& src, const Window& w,
                        bool in_place) {
  at::Tensor memory = memory_of(root, w.base_stride);
  bool own = memory.storage().unsafeGetStorageImpl() != root.storage().unsafeGetStorageImpl();
  if (!own && !in_place) memory = memory.clone();
  at::Tensor typed = in_elements_of(memory, w.dtype);
  typed.as_strided(ref_of(w.size), ref_of(w.stride), typed.storage_offset() + w.offset).copy_(src);
  return memory.as_strided(root.sizes(), ref_of(w.base_stride), memory.storage_offset());
}

at::Tensor resized_memory(const at::Tensor& root, std::span<const int64_t> base_stride,
                          int64_t numel) {
  at::Tensor memory = memory_of(root, base_stride), out = at::zeros({numel}, memory.options());
  int64_t both = std::min(numel, memory.numel());
  out.narrow(0, 0, both).copy_(memory.narrow(0, 0, both));
  return out;
}

}  // namespace tp::torch_room
