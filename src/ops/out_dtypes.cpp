// Which ops take an out= tensor of the result's dtype only, and in which words, as data. Structured
// ops are not here: the recorder knows them from their meta functions. The others cast into it, as
// PyTorch's TensorIterator does. Constant; any thread.
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "ops/eager_text.h"
#include "ops/row.h"

namespace tp::ops {
namespace {

struct Rule {
  const char* ops;
  std::string (*words)(DType want, DType have);
};

std::string scalar(DType t) { return std::string(eager_name(t).scalar); }

std::string same_unary(DType want, DType have) {
  return cat("Found dtype ", scalar(have), " but expected ", scalar(want));
}
std::string input_and_out(DType want, DType have) {
  return cat("Expected the dtype for input and out to match, but got ", scalar(want),
             " for input's dtype and ", scalar(have), " for out's dtype.");
}
std::string running(DType want, DType have) {
  return cat("expected scalar_type ", scalar(want), " but found ", scalar(have));
}
std::string same_as_self(DType, DType) {
  return "index_select(): self and result must have the same scalar type";
}
std::string take_words(DType want, DType have) {
  return cat("take(): self and out expected to have the same dtype, but got self.dtype = ",
             scalar(want), " and out.dtype = ", scalar(have));
}
std::string nan_words(DType want, DType have) {
  return cat("nan_to_num: dtype of out: ", scalar(have),
             " should be same as input: ", scalar(want));
}
std::string where_words(DType want, DType have) {
  return cat("Expected out type to be ", scalar(want), " but got ", scalar(have));
}

constexpr Rule kRules[] = {
    {"abs ceil conj_physical frac floor neg round round.decimals sign sgn trunc bitwise_not "
     "softshrink hardshrink gelu silu elu leaky_relu mish hardswish hardsigmoid softplus hardtanh",
     same_unary},
    {"amax amin", input_and_out},
    {"cummax cummin logcumsumexp", running},
    {"index_select", same_as_self},
    {"take", take_words},
    {"nan_to_num", nan_words},
    {"where.self", where_words},
};

const Rule* find_rule(std::string_view row) {
  static const auto* map = [] {
    auto* m = new std::unordered_map<std::string, const Rule*>;
    for (const Rule& r : kRules)
      any_word(r.ops, [&](std::string_view op) {
        m->emplace(cat("aten::", op), &r);
        return false;
      });
    return m;
  }();
  auto it = map->find(std::string(row));
  return it == map->end() ? nullptr : it->second;
}

}  // namespace

void check_out(const Row& row, DType result, DType out) {
  if (result == out) return;
  // abs of complex numbers has a kernel of its own, which casts.
  if (std::string_view(row.name) == "aten::abs" && ir::is_complex(out)) return;
  if (const Rule* r = find_rule(row.name)) fail(Code::kRuntime, r->words(result, out));
}

void check_inplace(const Row& row, DType self) {
  if (std::string_view(row.name) == "aten::abs" && ir::is_complex(self))
    fail(Code::kRuntime, "In-place abs is not supported for complex tensors.");
}

}  // namespace tp::ops
