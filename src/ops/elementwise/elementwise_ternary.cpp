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

std::string where_words(DType want, DType have) {
  return cat("Expected out type to be ", eager_name(want).scalar, " but got ",
             eager_name(have).scalar);
}

const Row kRows[] = {
    {.name = "aten::clamp",
     .lower = clamp,
     .kernels = {{.name = "clamp_max_scalar_cpu",
                  .takes = takes::kNumbers,
                  .decides = kBounded,
                  .lacks = "min"},
                 {.name = "clamp_min_scalar_cpu",
                  .takes = takes::kNumbers,
                  .decides = kBounded,
                  .lacks = "max"},
                 {.name = "clamp_scalar_cpu",
                  .takes = takes::kNumbers,
                  .decides = kBounded,
                  .given = "min max"}},
     .out = {.check = out_wants<found_words>},
     .recomputed = true},
    {.name = "aten::clamp.Tensor",
     .lower = clamp,
     .kernels = {{.name = "minimum_cpu", .takes = takes::kReals, .lacks = "min"},
                 {.name = "maximum_cpu", .takes = takes::kReals, .lacks = "max"},
                 {.name = "clamp_cpu", .takes = takes::kNumbers, .given = "min max"}}},
    {.name = "aten::clamp_min",
     .lower = clamp,
     .kernels = {{"clamp_min_scalar_cpu", takes::kNumbers, kBounded}},
     .recomputed = true},
    {.name = "aten::clamp_min.Tensor", .lower = clamp, .kernels = {{"maximum_cpu", takes::kReals}}},
    {.name = "aten::clamp_max",
     .lower = clamp,
     .kernels = {{"clamp_max_scalar_cpu", takes::kNumbers, kBounded}},
     .recomputed = true},
    {.name = "aten::clamp_max.Tensor", .lower = clamp, .kernels = {{"minimum_cpu", takes::kReals}}},
    {"aten::addcdiv", nullptr, add_combined<quotient>},
    {.name = "aten::addcmul",
     .lower = add_combined<product>,
     .kernels = {{"addcmul_cpu_out", takes::kNoBools}},
     .recomputed = true},
    {.name = "aten::lerp.Scalar",
     .lower = lerp,
     .kernels = {{"lerp_kernel_scalar", takes::kInexact}},
     .recomputed = true},
    {.name = "aten::lerp.Tensor",
     .lower = lerp,
     .kernels = {{"lerp_kernel_tensor", takes::kInexact}},
     .recomputed = true},
    {.name = "aten::where.self",
     .type = type_where,
     .lower = where,
     .layout = Layout::kIteratorOfRest,
     .out = {.check = out_wants<where_words>},
     .recomputed = true},
    {.name = "aten::masked_fill.Scalar",
     .type = type_masked_fill,
     .lower = masked_fill,
     .iterates = Iterates::kYes},
    {.name = "aten::masked_fill.Tensor",
     .type = type_masked_fill,
     .lower = masked_fill,
     .iterates = Iterates::kYes},
};

}  // namespace

Family elementwise_ternary() { return kRows; }

}  // namespace tp::ops
