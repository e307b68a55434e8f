// Sorting and search. NaN counts as the greatest value, as in eager; sorts are stable.
// Any thread.
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/host/choice.h"
#include "ops/index/indexing.h"
#include "ops/index/search.h"

namespace tp::ops {
namespace {

void push_pair(std::vector<V>& out, V values, V indices) {
  out.push_back(values);
  out.push_back(indices);
}

void sort_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  int64_t dim = l.has("dim") ? l.dim("dim", self.rank()) : std::max(self.rank() - 1, 0);
  if (self.rank() == 0 || self.type.numel() == 0) return push_pair(out, self, b.zeros(l.out(1)));
  Sorted s = sort_along(b, self, dim, l.b_or("descending", false));
  push_pair(out, s.values, s.indices);
}
// --- topk

// chlo.top_k takes the last dim's largest in total order, lower index first among equals. NaN gets
// its positive pattern, to be the greatest; the smallest are the largest of the negated.
Sorted top_last(Builder& b, V x, int64_t k, bool largest) {
  if (ir::is_float(x.dtype()))
    x = b.select(b.is_nan(x), b.constant(std::numeric_limits<double>::quiet_NaN(), x.type), x);
  if (!largest) x = b.neg(x);
  IntList dims = dims_of(x.type);
  dims.back() = k;
  Type types[] = {x.type.with(dims), ir::make_type(DType::kS32, dims)};
  auto r = b.ops("chlo.top_k", {&x, 1}, types, cat("k = ", k, " : i64"));
  return {largest ? r[0] : b.neg(r[0]), b.convert(r[1], DType::kS64)};
}
void topk_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V self = l.in("self");
  int64_t dim = l.has("dim") ? l.dim("dim", self.rank()) : std::max(self.rank() - 1, 0);
  if (self.rank() == 0 || l.out().numel() == 0)
    return push_pair(out, b.reshape(l.out().numel() ? self : b.zeros(l.out()), l.out().dims()),
                     b.zeros(l.out(1)));
  int64_t k = l.i("k"), last = self.rank() - 1;
  bool largest = l.b_or("largest", true);
  bool negatable = ir::is_float(self.dtype());
  if (k == self.dim(static_cast<size_t>(dim)) || (!largest && !negatable)) {
    Sorted s = sort_along(b, self, dim, largest);
    return push_pair(out, b.slice_dim(s.values, dim, 0, k), b.slice_dim(s.indices, dim, 0, k));
  }
  IntList perm = iota_dims(self.rank());
  std::swap(perm[static_cast<size_t>(dim)], perm[static_cast<size_t>(last)]);
  Sorted s = top_last(b, b.transpose(self, perm), k, largest);
  push_pair(out, b.transpose(s.values, perm), b.transpose(s.indices, perm));
}

// --- what out= may be

std::string histogram_words(DType, DType) {
  return "torch.histogram: input tensor and hist tensor should have the same dtype";
}
std::string places_words(DType, DType have) {
  return cat(
      "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or "
      "Long(int64), but we got output tensor's dtype ",
      eager_name(have).scalar);
}

}  // namespace

Family sort() {
  static const Row kRows[] = {
      {.name = "aten::sort.stable",
       .lower = sort_lower,
       .faster_on_host = faster_on_host::along_a_row},
      {.name = "aten::topk", .lower = topk_lower},
      {.name = "aten::isin.Tensor_Tensor", .lower = isin_lower},
      {.name = "aten::isin.Tensor_Scalar", .lower = isin_lower},
      {.name = "aten::isin.Scalar_Tensor", .lower = isin_lower},
      {.name = "aten::searchsorted.Tensor",
       .type = searchsorted_type,
       .lower = searchsorted_lower,
       .kernels = {{"searchsorted_out_cpu", takes::kNumbers | takes::kEmpty}},
       .out = {.check = out_wants<places_words>}},
      {.name = "aten::searchsorted.Scalar",
       .type = searchsorted_type,
       .lower = searchsorted_lower,
       .kernels = {{"searchsorted_out_cpu", takes::kNumbers}},
       .out = {.check = out_wants<places_words>}},
      {.name = "aten::bucketize.Tensor",
       .type = bucketize_type,
       .lower = bucketize_lower,
       .kernels = {{"searchsorted_out_cpu", takes::kNumbers | takes::kEmpty}},
       .out = {.check = out_wants<places_words>}},
      {.name = "aten::bucketize.Scalar",
       .type = bucketize_type,
       .lower = bucketize_lower,
       .kernels = {{"searchsorted_out_cpu", takes::kNumbers}},
       .out = {.check = out_wants<places_words>}},
      {.name = "aten::histc",
       .type = histc_type,
       .lower = histc_lower,
       .out = {.check = out_wants<histogram_words>},
       .refuses_numbers = true},
  };
  return kRows;
}

}  // namespace tp::ops
