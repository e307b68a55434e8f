// Three operands or more, elementwise. Bounds may be absent; NaN passes through clamps as in eager.
#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

void clamp(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t);
  if (l.has("min")) x = b.max(x, l.number("min", t));
  if (l.has("max")) x = b.min(x, l.number("max", t));
  put(l, out, x);
}

// self + value * tensor1 (op) tensor2, in eager's order of operations.
template <auto combine>
void add_combined(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t), first = l.number("tensor1", t), second = l.number("tensor2", t);
  first = l.has("value") ? b.mul(l.number("value", t), first) : times_one(b, first);
  put(l, out, b.add(x, combine(b, first, second)));
}
V product(Builder& b, V x, V y) { return b.mul(x, y); }
V quotient(Builder& b, V x, V y) { return b.div(x, y); }

// From the nearer end, so that weight 1 gives `end` exactly.
void lerp(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t), end = l.number("end", t), w = l.number("weight", t);
  V span = b.sub(end, x);
  V near = b.compare(b.abs(w), 0.5, Cmp::kLt);
  V from_start = b.add(x, b.mul(w, span));
  V from_end = b.sub(end, b.mul(span, b.sub(b.ones(t), w)));
  put(l, out, b.select(near, from_start, from_end));
}

V condition(Lowering& l, std::string_view name) {
  Builder& b = l.builder();
  return b.broadcast_to(b.convert(l.in(name), DType::kPred), l.out().dims());
}

void where(Lowering& l, std::vector<V>& out) {
  V pred = condition(l, "condition"), x = l.number("self", l.out()), y = l.number("other", l.out());
  out.push_back(l.builder().select(pred, x, y));
}

void masked_fill(Lowering& l, std::vector<V>& out) {
  V pred = condition(l, "mask"), x = l.number("self", l.out());
  out.push_back(l.builder().select(pred, l.number("value", l.out()), x));
}

void type_where(const Args& a, std::vector<Type>& out) {
  Type c = a.type("condition");
  if (c.dtype() != DType::kPred && c.dtype() != DType::kU8)
    fail(Code::kRuntime,
         cat("where expected condition to be a boolean tensor, but got a tensor with dtype ",
             eager_name(c.dtype()).scalar));
  IntList dims =
      broadcast_dims(broadcast_dims(c.dims(), a.type("self").dims()), a.type("other").dims());
  out.push_back(ir::make_type(a.common_dtype({"self", "other"}), dims));
}

void type_masked_fill(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self"), mask = a.type("mask");
  if (mask.dtype() != DType::kPred)
    fail(Code::kRuntime, cat("masked_fill_ only supports boolean masks, but got mask with dtype ",
                             eager_name(mask.dtype()).cpp));
  if (a.type("value").rank() != 0)
    fail(Code::kRuntime,
         cat("masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
             a.type("value").rank(), " dimension(s)."));
  out.push_back(x.with(broadcast_dims(mask.dims(), x.dims())));
}

const Row kRows[] = {
    {"aten::clamp", nullptr, clamp},
    {"aten::clamp.Tensor", nullptr, clamp},
    {"aten::clamp_min", nullptr, clamp},
    {"aten::clamp_min.Tensor", nullptr, clamp},
    {"aten::clamp_max", nullptr, clamp},
    {"aten::clamp_max.Tensor", nullptr, clamp},
    {"aten::addcdiv", nullptr, add_combined<quotient>},
    {"aten::addcmul", nullptr, add_combined<product>},
    {"aten::lerp.Scalar", nullptr, lerp},
    {"aten::lerp.Tensor", nullptr, lerp},
    {"aten::where.self", type_where, where, Layout::kIterator},
    {"aten::masked_fill.Scalar", type_masked_fill, masked_fill},
    {"aten::masked_fill.Tensor", type_masked_fill, masked_fill},
};

}  // namespace

Family elementwise_ternary() { return kRows; }

}  // namespace tp::ops
