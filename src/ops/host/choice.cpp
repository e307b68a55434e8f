#include "ops/host/choice.h"

#include <algorithm>

#include "ops/host/host.h"
#include "ops/nn/conv_shape.h"

namespace tp::ops {
namespace {

// Of which a call's own cost (about 20 us) is little.
constexpr int64_t kLeastElements = 1 << 15, kLeastProducts = 1 << 18;

bool is_f32(const Args& a, std::string_view name) { return a.type(name).dtype() == DType::kF32; }

int64_t products(Type out, Type weight) {
  return weight.dim(0) ? out.numel() * (weight.numel() / weight.dim(0)) : 0;
}

// A convolution of 2 spatial dims over something.
bool is_plane(Type x, Type w, Type out) {
  return w.rank() == 4 && x.numel() && w.numel() && out.numel();
}

// A channel by itself is a few multiply-adds, which XLA fuses.
bool convolution(const Lowering& l) {
  Type x = l.type("input"), w = l.type("weight"), out = l.out();
  ConvArgs c = conv_args(l, w.rank());
  bool alone = w.rank() == 4 && w.dim(1) == 1 && c.groups > 1;
  return is_f32(l, "input") && is_plane(x, w, out) && !alone && products(out, w) >= kLeastProducts;
}

bool convolution_backward(const Lowering& l) {
  Type x = l.type("input"), w = l.type("weight"), grad = l.type("grad_output");
  return is_f32(l, "input") && is_plane(x, w, grad) && products(grad, w) >= kLeastProducts;
}

bool is_large_f32(const Lowering& l, std::string_view name) {
  return is_f32(l, name) && l.type(name).numel() >= kLeastElements;
}

bool same_dtypes(const Lowering& l) {
  return std::ranges::all_of(l.node().operands(), [](const ir::Value& v) {
    return v.node->role() == ir::Role::kNumber || v.type().dtype() == DType::kF32;
  });
}

bool batch_norm(const Lowering& l) {
  bool trains = !l.has("training") || l.b("training");
  return trains && is_large_f32(l, "input") && same_dtypes(l);
}

bool batch_norm_backward(const Lowering& l) {
  return l.b("train") && is_large_f32(l, "input") && same_dtypes(l);
}

bool layer_norm(const Lowering& l) { return is_large_f32(l, "input") && same_dtypes(l); }

bool along_a_row(const Lowering& l) {
  Type x = l.type("self");
  return is_large_f32(l, "self") && x.rank() && l.dim("dim", x.rank()) == x.rank() - 1;
}

bool gradient_along_a_row(const Lowering& l) {
  Type x = l.type("output");
  return is_large_f32(l, "output") && x.rank() && l.dim("dim", x.rank()) == x.rank() - 1 &&
         l.out().dtype() == DType::kF32;
}

// Not the forward: XLA's code for it takes a tenth of the kernel's time. Its backward, where fused
// with the forward, computes that again for each element.
bool max_pool_backward(const Lowering& l) { return is_large_f32(l, "self"); }

struct Choice {
  std::string_view row, op;  // the row, and the overload that is called
  bool (*faster)(const Lowering&);
};

constexpr Choice kChoices[] = {
    {"aten::convolution", "aten::convolution", convolution},
    {"aten::convolution_overrideable", "aten::convolution", convolution},
    {"aten::convolution_backward", "aten::convolution_backward", convolution_backward},
    {"aten::convolution_backward_overrideable", "aten::convolution_backward", convolution_backward},
    {"aten::native_batch_norm", "aten::native_batch_norm", batch_norm},
    {"aten::native_batch_norm_backward", "aten::native_batch_norm_backward", batch_norm_backward},
    {"aten::native_layer_norm", "aten::native_layer_norm", layer_norm},
    {"aten::native_layer_norm_backward", "aten::native_layer_norm_backward", layer_norm},
    {"aten::max_pool2d_with_indices_backward", "aten::max_pool2d_with_indices_backward",
     max_pool_backward},
    {"aten::_softmax", "aten::_softmax", along_a_row},
    {"aten::_log_softmax", "aten::_log_softmax", along_a_row},
    {"aten::_softmax_backward_data", "aten::_softmax_backward_data", gradient_along_a_row},
    {"aten::_log_softmax_backward_data", "aten::_log_softmax_backward_data", gradient_along_a_row},
    {"aten::sort.stable", "aten::sort.stable", along_a_row},
    {"aten::cumsum", "aten::cumsum", along_a_row},
};

const Choice* choice_of(std::string_view row) {
  for (const Choice& c : kChoices)
    if (c.row == row) return &c;
  return nullptr;
}

}  // namespace

bool lower_on_host(Lowering& l, std::vector<V>& out) {
  const Choice* c = choice_of(l.node().kind().name);
  if (!c || std::ranges::any_of(l.inputs(), [](const V& v) { return bool(v); })) return false;
  if (!c->faster(l)) return false;
  host_call(l, out, c->op);
  return true;
}

}  // namespace tp::ops
