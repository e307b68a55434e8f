#include "torch/value_sizes.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "torch/cuts.h"

namespace tp::torch_room {
namespace {

using at::Tensor;

// Both numbers at once.
std::pair<int64_t, int64_t> read_pair(const Tensor& a, const Tensor& b) {
  Tensor both = at::stack({a.to(at::kLong), b.to(at::kLong)}).cpu();
  return {both[0].item<int64_t>(), both[1].item<int64_t>()};
}

// Eager adds up float32 weights as they are and all others in double.
Tensor bincount(const Tensor& self, const std::optional<Tensor>& weights, int64_t minlength) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      c10::isIntegralType(self.scalar_type(), false) && self.scalar_type() != at::kUInt16 &&
          self.scalar_type() != at::kUInt32 && self.scalar_type() != at::kUInt64,
      "\"bincount_cpu\" not implemented for '", c10::toString(self.scalar_type()), "'");
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  if (self.dim() == 1 && self.numel() == 0)
    return at::zeros({minlength}, self.options().dtype(at::kLong));
  const char* rule = "bincount only supports 1-d non-negative integral inputs.";
  TORCH_CHECK(self.dim() == 1, rule);
  ReadKind kind("bincount's size");
  auto [low, high] = at::aminmax(self);
  auto [least, most] = read_pair(low, high);
  TORCH_CHECK(least >= 0, rule);
  bool weighed = weights && weights->defined() && weights->numel() > 0;
  TORCH_CHECK(!weighed || (weights->dim() == 1 && weights->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  Tensor what = weighed ? *weights : at::ones_like(self, self.options().dtype(at::kLong));
  if (weighed && what.scalar_type() != at::kFloat) what = what.to(at::kDouble);
  Tensor sums = at::zeros({std::max(most + 1, minlength)}, what.options());
  return sums.scatter_add_(0, self.to(at::kLong), what);
}

// The index of each repetition. With output_size, that it is the repeats' sum is not looked at.
Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  at::ScalarType t = repeats.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(t == at::kLong || t == at::kInt,
                              "\"repeat_interleave_cpu\" not implemented for '", c10::toString(t),
                              "'");
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  if (repeats.size(0) == 0) return at::empty_like(repeats);
  Tensor ends = repeats.cumsum(0);
  if (!output_size) {
    ReadKind kind("repeat_interleave's size", "give it output_size=, and it reads nothing");
    auto [least, total] = read_pair(repeats.min(), ends[-1]);
    TORCH_CHECK(least >= 0, "repeats can not be negative");
    output_size = total;
  }
  TORCH_CHECK(*output_size >= 0, "Trying to create tensor with negative dimension ", *output_size,
              ": [", *output_size, "]");
  Tensor place = at::arange(*output_size, ends.options());
  Tensor at = at::searchsorted(ends, place, /*out_int32=*/t == at::kInt, /*right=*/true);
  return at.clamp_max(repeats.size(0) - 1);
}

}  // namespace

void register_value_sizes(torch::Library& m) {
  m.impl("bincount", TORCH_FN(bincount));
  m.impl("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
}

}  // namespace tp::torch_room
