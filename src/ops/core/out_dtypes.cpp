// What eager asks of out= tensors, op by op: which dtypes, in which words, and what follows from
// them, as data. Structured ops are not here: the recorder knows them from their meta functions.
// The others cast into it, as PyTorch's TensorIterator does. Constant; any thread.
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/row.h"
#include "ops/core/rules_by_op.h"

namespace tp::ops {
namespace {

struct Rule {
  const char* ops;
  std::string (*words)(DType want, DType have);
};

std::string scalar(DType t) { return std::string(eager_name(t).scalar); }

// at::canCast
bool casts(DType from, DType to) {
  if (ir::is_complex(from)) return ir::is_complex(to);
  if (ir::is_float(from)) return ir::is_float(to) || ir::is_complex(to);
  return from == DType::kPred || to != DType::kPred;
}

std::string same_unary(DType want, DType have) { return found_dtype(have, want); }
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

std::string dot_words(DType want, DType have) {
  return cat("result dtype ", scalar(have), " does not match input dtype ", scalar(want));
}
std::string values_words(DType want, DType have) {
  return cat("expected scalar type '", scalar(want), "' but got '", scalar(have),
             "' for values output");
}
std::string same_type_words(DType, DType) { return "output values must be of same type as input"; }
std::string histogram_words(DType, DType) {
  return "torch.histogram: input tensor and hist tensor should have the same dtype";
}
std::string heaviside_words(DType, DType) {
  return "heaviside is not yet implemented for tensors with different dtypes.";
}
std::string places_words(DType, DType have) {
  return cat(
      "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or "
      "Long(int64), but we got output tensor's dtype ",
      scalar(have));
}
std::string parts_words(DType want, DType have) {
  return cat("Expected object of scalar type ", scalar(want), " but got scalar type ", scalar(have),
             " for argument 'out'");
}
std::string multinomial_words(DType want, DType have) {
  return cat("multinomial expects ", scalar(want), " tensor out, got: ", scalar(have));
}
std::string boolean_words(DType, DType) { return "does not support non-boolean outputs."; }

constexpr Rule kRules[] = {
    {"sum sum.dim_IntList prod prod.dim_int nansum cumsum cumprod linalg_vector_norm "
     "norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dtype norm.ScalarOpt_dim_dtype",
     expected_out_dtype},
    {"dot vdot", dot_words},
    {"mode median.dim nanmedian.dim", values_words},
    {"kthvalue", same_type_words},
    {"histc", histogram_words},
    {"multinomial", multinomial_words},
    {"heaviside", heaviside_words},
    {"searchsorted.Tensor searchsorted.Scalar bucketize.Tensor bucketize.Scalar", places_words},
    {"isposinf isneginf signbit", boolean_words},
    {"clamp abs ceil conj_physical frac floor neg round round.decimals sign sgn trunc bitwise_not "
     "softshrink hardshrink gelu silu elu leaky_relu mish hardswish hardsigmoid softplus hardtanh",
     same_unary},
    {"amax amin", input_and_out},
    {"cummax cummin logcumsumexp", running},
    {"index_select", same_as_self},
    {"take", take_words},
    {"nan_to_num", nan_words},
    {"where.self", where_words},
    {"complex polar", parts_words},
};

const Rule* find_rule(std::string_view row) {
  static const auto* rules = new RulesByOp<Rule>(kRules);
  return rules->find(row);
}

}  // namespace

void check_out(const Row& row, DType result, DType out) {
  if (result == out) return;
  std::string_view name = row.name;
  // abs of complex numbers has a kernel of its own, which casts.
  if (name == "aten::abs" && ir::is_complex(out)) return;
  if (has_word("all all.dim any any.dim all.dims any.dims", name.substr(6))) {
    if (out != DType::kU8)
      fail(Code::kRuntime,
           cat(name.substr(6, 3), " only supports bool tensor for result, got: ", scalar(out)));
    return;
  }
  if ((name == "aten::cat" || name == "aten::stack") && !casts(result, out))
    fail(Code::kType,
         cat("torch.cat(): input types can't be cast to the desired output type ", scalar(out)));
  if (const Rule* r = find_rule(name)) fail(Code::kRuntime, r->words(result, out));
}

bool fills_outs(std::string_view row) {
  std::string_view base = row.substr(6, row.find('.', 6) - 6);  // without the overload
  return has_word("arange range linspace logspace", base);
}

bool iterates(const Row& row) {
  static constexpr std::string_view kOthers =
      "addr index_select masked_select nonzero scatter.src scatter.value scatter.reduce "
      "scatter.value_reduce scatter_add scatter_reduce.two take where.self";
  if (has_word("log_sigmoid_forward", row.name + 6)) return false;
  if (row.layout == Layout::kIterator || row.layout == Layout::kIteratorReversed) return true;
  for (Family f :
       {elementwise_unary(), elementwise_binary(), elementwise_ternary(), activation(), compare(),
        special_bessel(), special_erf(), special_gamma(), special_polynomial()})
    if (!f.empty() && &row >= f.data() && &row < f.data() + f.size()) return true;
  return has_word(kOthers, row.name + 6);
}

bool takes_outs_dtype(std::string_view row) {
  return has_word("sum sum.dim_IntList prod prod.dim_int nansum cumsum cumprod", row.substr(6));
}

void check_inplace(const Row& row, DType self) {
  if (std::string_view(row.name) == "aten::abs" && ir::is_complex(self))
    fail(Code::kRuntime, "In-place abs is not supported for complex tensors.");
}

}  // namespace tp::ops
