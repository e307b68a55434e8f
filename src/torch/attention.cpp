// Attention of half types in PyTorch's math form, as its fused kernels compute it: both products of
// halves that add up in float32, scores and softmax in float32, probabilities rounded once. The
// form of core lifts queries, keys and values to float32 and scales them there: float32 products,
// several times slower on accelerators. Any thread.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/_scaled_dot_product_attention_math_native.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "torch/checks.h"

namespace tp::torch_room {
namespace {

// The identity; its gradient is rounded to the dtype of `like`, so that the products that it enters
// are of halves (ops/linalg/matmul.cpp).
struct RoundedGradient : torch::autograd::Function<RoundedGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            at::ScalarType half) {
    context->saved_data["half"] = static_cast<int64_t>(half);
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grad) {
    auto half = static_cast<at::ScalarType>(context->saved_data["half"].toInt());
    return {grad[0].to(half).to(at::kFloat), {}};
  }
};

at::Tensor lifted(const at::Tensor& x) { return x.to(at::kFloat); }

// Of exact floats: halves that were lifted.
at::Tensor product(const at::Tensor& x, const at::Tensor& y, at::ScalarType half) {
  at::Tensor p = at::matmul(x, y);
  return p.requires_grad() ? RoundedGradient::apply(p, half) : p;
}

at::Tensor causal_mask(const at::Tensor& scores) {
  auto future =
      at::full({scores.size(-2), scores.size(-1)}, true, scores.options().dtype(at::kBool)).triu(1);
  return scores.masked_fill(future, -INFINITY);
}

// Heads of the keys, each repeated for its group of query heads.
at::Tensor for_each_head(const at::Tensor& x, int64_t heads) {
  return x.size(-3) == heads ? x : x.repeat_interleave(heads / x.size(-3), -3);
}

using Result = std::tuple<at::Tensor, at::Tensor>;

Result half_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const std::optional<at::Tensor>& mask, double dropout, bool causal,
                      double scale) {
  at::ScalarType half = q.scalar_type();
  at::Tensor scores = product(lifted(q), lifted(k).transpose(-2, -1), half) * scale;
  if (causal) scores = causal_mask(scores);
  if (mask) scores = scores + *mask;
  at::Tensor p = at::_safe_softmax(scores, -1);
  if (dropout > 0) p = at::dropout(p, dropout, true);
  at::Tensor rounded = p.to(half);
  return {product(lifted(rounded), lifted(v), half).to(half), rounded};
}

// Whether core's form would do no better: other dtypes, masks for tests, shapes that it refuses.
bool is_plain_half(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool masks,
                   bool causal, bool groups) {
  at::ScalarType t = q.scalar_type();
  if (t != at::kHalf && t != at::kBFloat16) return false;
  for (const at::Tensor* x : {&q, &k, &v})
    if (x->is_nested() || x->scalar_type() != t || x->dim() < 2 || !x->device().is_xla())
      return false;
  if (causal && masks) return false;
  if (!groups) return true;
  for (const at::Tensor* x : {&q, &k, &v})
    if (x->dim() < 3 || x->size(-3) == 0 || q.size(-3) % x->size(-3)) return false;
  return true;
}

Result attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const std::optional<at::Tensor>& mask, double dropout, bool causal,
                 const std::optional<at::Tensor>& dropout_mask, std::optional<double> scale,
                 bool groups) {
  bool masked = mask && mask->defined();
  if (dropout_mask || !is_plain_half(q, k, v, masked, causal, groups))
    return at::native::_scaled_dot_product_attention_math(q, k, v, mask, dropout, causal,
                                                          dropout_mask, scale, groups);
  double by = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
  if (!groups) return half_attention(q, k, v, mask, dropout, causal, by);
  int64_t heads = q.size(-3);
  return half_attention(q, for_each_head(k, heads), for_each_head(v, heads), mask, dropout, causal,
                        by);
}

}  // namespace

void register_attention(torch::Library& m) {
  m.impl("_scaled_dot_product_attention_math", TP_FN(attention));
}

}  // namespace tp::torch_room
