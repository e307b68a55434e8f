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

bool is_large_f32(const Lowering& l, std::string_view name) {
  return is_f32(l, name) && l.type(name).numel() >= kLeastElements;
}

bool same_dtypes(const Lowering& l) {
  return std::ranges::all_of(l.node().operands(), [](const ir::Value& v) {
    return v.node->role() == ir::Role::kNumber || v.type().dtype() == DType::kF32;
  });
}

}  // namespace

namespace faster_on_host {

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

}  // namespace faster_on_host

bool lower_on_host(const Row& row, Lowering& l, std::vector<V>& out) {
  if (!row.faster_on_host || std::ranges::any_of(l.inputs(), [](const V& v) { return bool(v); }))
    return false;
  if (!row.faster_on_host(l)) return false;
  host_call(l, out, row.host_name ? row.host_name : row.name);
  return true;
}

}  // namespace tp::ops
