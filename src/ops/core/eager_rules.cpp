// Asks a row's rules about a call (eager_rules.h). Any thread.
#include "ops/core/eager_rules.h"

#include "base/text.h"
#include "ops/core/row.h"

namespace tp::ops {
namespace {

constexpr unsigned kind(DType t) {
  if (t == DType::kPred) return takes::kBools;
  if (ir::is_complex(t)) return takes::kComplexes;
  if (ir::is_small_float(t)) return takes::kSmall;
  return ir::is_float(t) ? takes::kWide : takes::kIntegers;
}

// One empty factor makes a product that eager returns at once, where nothing is added to it.
bool any_empty(const Args& a) {
  auto empty = [&](const char* name) {
    auto t = a.opt_type(name);
    return t && t->numel() == 0;
  };
  return empty("self") || (!a.has("mat1") && (empty("mat2") || empty("vec")));
}

void check_kernel(const Kernel& k, const Args& a) {
  if (k.choice && a.text_or(k.choice, "") != k.chosen) return;
  if (any_word(k.given, [&](std::string_view name) { return !a.has(name); })) return;
  if (any_word(k.lacks, [&](std::string_view name) { return a.has(name); })) return;
  DType t = !k.decides                                ? a.common_dtype()
            : std::string_view(k.decides) == kBounded ? a.common_dtype({"self", "min", "max"})
                                                      : a.type(k.decides).dtype();
  if (k.takes == takes::kExactOrWide) t = a.as_float(t);
  if ((k.takes & takes::kScalars) && a.type("self").rank() == 0) return;
  if ((k.takes & takes::kEmpty) && any_empty(a)) return;
  bool takes = (kind(t) & k.takes) || (t == DType::kU8 && (k.takes & takes::kBytes)) ||
               (t == DType::kS64 && (k.takes & takes::kLongs));
  if (!takes) fail(Code::kNotImplemented, not_implemented_for(k.name, t));
}

}  // namespace

void check_call(const Row& row, const Args& a) {
  if (row.check) row.check(a);
  for (const Kernel& k : row.kernels) check_kernel(k, a);
}

void check_out(const Row& row, DType result, DType out) {
  if (row.out.check && result != out) row.out.check(result, out);
}

void check_inplace(const Row& row, DType self) {
  if (row.check_inplace) row.check_inplace(self);
}

}  // namespace tp::ops
