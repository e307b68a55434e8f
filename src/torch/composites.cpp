// PyTorch's composites that would read the device although shapes decide alone, or that refuse
// indices on the device: written again for device xla. Any thread.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor_split_native.h>

#include "torch/kernels.h"

namespace tp::torch_room {
namespace {

// Appends every choice of r of the places 0..n-1 in lexicographic order.
std::vector<int64_t> choices(int64_t n, int64_t r, bool repeat) {
  std::vector<int64_t> all, now(static_cast<size_t>(r), 0);
  for (size_t i = 1; i < now.size() && !repeat; ++i) now[i] = static_cast<int64_t>(i);
  auto last = [&](size_t i) { return repeat ? n - 1 : n - r + static_cast<int64_t>(i); };
  if (n == 0 || (!repeat && r > n)) return all;
  for (;;) {
    all.insert(all.end(), now.begin(), now.end());
    size_t i = now.size();
    while (i > 0 && now[i - 1] == last(i - 1)) --i;
    if (i == 0) return all;
    int64_t next = ++now[i - 1];
    for (; i < now.size(); ++i) now[i] = repeat ? next : ++next;
  }
}

// aten's selects by a mask, whose number of ones it would have to read.
at::Tensor combinations(const at::Tensor& self, int64_t r, bool with_replacement) {
  TORCH_CHECK(self.dim() == 1, "Expect a 1D vector, but got shape ", self.sizes());
  TORCH_CHECK(r >= 0, "Expect a non-negative number, but got ", r);
  if (r == 0) return at::empty({0}, self.options());
  std::vector<int64_t> places = choices(self.numel(), r, with_replacement);
  at::Tensor index = at::from_blob(places.data(), {static_cast<int64_t>(places.size())}, at::kLong);
  return self.index_select(0, index.to(self.device())).view({-1, r});
}

// The pieces' sizes are in the indices: they are read, which counts as a cut at this line.
std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& places,
                                     int64_t dim) {
  return at::native::tensor_split(self, places.cpu(), dim);
}

}  // namespace

void register_composites(torch::Library& m) {
  m.impl("combinations", TORCH_FN(combinations));
  m.impl("tensor_split.tensor_indices_or_sections", TORCH_FN(tensor_split));
}

}  // namespace tp::torch_room
