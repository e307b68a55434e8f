// PyTorch's composites that would read the device although shapes decide alone, that refuse
// indices on the device, or that call kernels of PyTorch's own devices: written again for device
// xla. Any thread.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor_split_native.h>

#include "base/sizes.h"
#include "torch/checks.h"
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
  // Eager makes a grid of all n^r choices first.
  int64_t grid = 1;
  for (int64_t i = 0; i < r && grid > 0; ++i) grid = checked_mul(grid, self.numel());
  std::vector<int64_t> places = choices(self.numel(), r, with_replacement);
  at::Tensor index = at::from_blob(places.data(), {static_cast<int64_t>(places.size())}, at::kLong);
  return self.index_select(0, index.to(self.device())).view({-1, r});
}

// The pieces' sizes are in the indices: they are read, which counts as a cut at this line.
std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& places,
                                     int64_t dim) {
  return at::native::tensor_split(self, places.cpu(), dim);
}

// I0(beta sqrt(1 - ((n - a) / a)^2)) / I0(beta) with a = (N - 1) / 2; a periodic window is that of
// N + 1 points without the last. The points round to the window's dtype, as in eager's kernel.
at::Tensor kaiser_window_beta(int64_t length, bool periodic, double beta,
                              std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                              std::optional<at::Device> device, std::optional<bool> pinned) {
  auto options =
      at::TensorOptions().dtype(dtype).layout(layout).device(device).pinned_memory(pinned);
  TORCH_CHECK(options.layout() != at::kSparse,
              "kaiser_window is not implemented for sparse types, got: ", options);
  at::ScalarType t = c10::typeMetaToScalarType(options.dtype());
  TORCH_CHECK(at::isFloatingType(t) || at::isComplexType(t),
              "kaiser_window expects floating point dtypes, got: ", options);
  TORCH_CHECK(length >= 0,
              "kaiser_window requires non-negative window_length, got window_length=", length);
  if (length < 2) return at::ones({length}, options);
  if (periodic) ++length;
  double half = static_cast<double>(length - 1) / 2;
  at::Tensor place = at::arange(length, options);
  at::ScalarType wide = t == at::kDouble ? t : at::kFloat;
  at::Tensor up = (place.to(wide) - half) / half;  // of half floats the last may be beyond 1
  at::Tensor window = (1 - up.pow(2)).abs().sqrt().mul(beta).i0();
  window = (window / at::full({}, beta, window.options()).i0()).to(t);
  return periodic ? window.narrow(0, 0, length - 1) : window;
}
at::Tensor kaiser_window_periodic(int64_t length, bool periodic,
                                  std::optional<at::ScalarType> dtype,
                                  std::optional<at::Layout> layout,
                                  std::optional<at::Device> device, std::optional<bool> pinned) {
  return kaiser_window_beta(length, periodic, 12, dtype, layout, device, pinned);
}
at::Tensor kaiser_window(int64_t length, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pinned) {
  return kaiser_window_beta(length, true, 12, dtype, layout, device, pinned);
}

}  // namespace

void register_attention(torch::Library& m);  // attention.cpp

void register_composites(torch::Library& m) {
  register_attention(m);
  m.impl("combinations", TP_FN(combinations));
  m.impl("kaiser_window", TP_FN(kaiser_window));
  m.impl("kaiser_window.periodic", TP_FN(kaiser_window_periodic));
  m.impl("kaiser_window.beta", TP_FN(kaiser_window_beta));
  m.impl("tensor_split.tensor_indices_or_sections", TP_FN(tensor_split));
}

}  // namespace tp::torch_room
