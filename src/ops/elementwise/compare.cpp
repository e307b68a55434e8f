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
    {"aten::eq.Tensor", nullptr, lower<Cmp::kEq>}, {"aten::eq.Scalar", nullptr, lower<Cmp::kEq>},
    {"aten::ne.Tensor", nullptr, lower<Cmp::kNe>}, {"aten::ne.Scalar", nullptr, lower<Cmp::kNe>},
    {"aten::lt.Tensor", nullptr, lower<Cmp::kLt>}, {"aten::lt.Scalar", nullptr, lower<Cmp::kLt>},
    {"aten::le.Tensor", nullptr, lower<Cmp::kLe>}, {"aten::le.Scalar", nullptr, lower<Cmp::kLe>},
    {"aten::gt.Tensor", nullptr, lower<Cmp::kGt>}, {"aten::gt.Scalar", nullptr, lower<Cmp::kGt>},
    {"aten::ge.Tensor", nullptr, lower<Cmp::kGe>}, {"aten::ge.Scalar", nullptr, lower<Cmp::kGe>},
};

}  // namespace

Family compare() { return kRows; }

}  // namespace tp::ops
