// Comparisons: in the dtype that both operands promote to, with a bool result. Narrow floats need
// no widening.
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

template <Cmp how>
void lower(Lowering& l, std::vector<V>& out) {
  Type t = l.out().with(l.common_dtype({"self", "other"}));
  V x = l.number("self", t), y = l.number("other", t);
  out.push_back(l.builder().compare(x, y, how));
}

const Row kRows[] = {
    {"aten::eq.Tensor", nullptr, lower<Cmp::kEq>},
    {"aten::eq.Scalar", nullptr, lower<Cmp::kEq>},
    {"aten::ne.Tensor", nullptr, lower<Cmp::kNe>},
    {"aten::ne.Scalar", nullptr, lower<Cmp::kNe>},
    {.name = "aten::lt.Tensor", .lower = lower<Cmp::kLt>, .kernels = {{"lt_cpu", takes::kReals}}},
    {.name = "aten::lt.Scalar", .lower = lower<Cmp::kLt>, .kernels = {{"lt_cpu", takes::kReals}}},
    {.name = "aten::le.Tensor", .lower = lower<Cmp::kLe>, .kernels = {{"le_cpu", takes::kReals}}},
    {.name = "aten::le.Scalar", .lower = lower<Cmp::kLe>, .kernels = {{"le_cpu", takes::kReals}}},
    {.name = "aten::gt.Tensor", .lower = lower<Cmp::kGt>, .kernels = {{"gt_cpu", takes::kReals}}},
    {.name = "aten::gt.Scalar", .lower = lower<Cmp::kGt>, .kernels = {{"gt_cpu", takes::kReals}}},
    {.name = "aten::ge.Tensor", .lower = lower<Cmp::kGe>, .kernels = {{"ge_cpu", takes::kReals}}},
    {.name = "aten::ge.Scalar", .lower = lower<Cmp::kGe>, .kernels = {{"ge_cpu", takes::kReals}}},
};

}  // namespace

Family compare() { return kRows; }

}  // namespace tp::ops
