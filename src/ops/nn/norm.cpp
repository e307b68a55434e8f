// Layer, group and weight normalisation, and the table of all normalisations (batch:
// batch_norm.cpp). Statistics are taken in two passes, in f32 for halves.
#include "ops/nn/norm.h"

#include <algorithm>

#include "base/error.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/host/choice.h"
#include "ops/reduce/axis.h"
#include "ops/reduce/order.h"

namespace tp::ops {
namespace {

// --- layer norm

void check_layer_norm(Type x, const IntList& shape, std::optional<Type> weight,
                      std::optional<Type> bias) {
  if (shape.empty())
    fail(Code::kRuntime,
         "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
         "one element, but got normalized_shape = []");
  auto same = [&shape](std::optional<Type> t, std::string_view name) {
    if (t && !std::ranges::equal(t->dims(), shape))
      fail(Code::kRuntime,
           cat("Expected ", name, " to be of same shape as normalized_shape, but got ", name,
               " of shape ", size_text(t->dims()), " and normalized_shape = ", size_text(shape)));
  };
  same(weight, "weight");
  same(bias, "bias");
  Ints dims = x.dims();
  if (dims.size() < shape.size() || !std::ranges::equal(dims.last(shape.size()), shape))
    fail(Code::kRuntime,
         cat("Given normalized_shape=", size_text(shape), ", expected input with shape [*, ",
             join(shape, ", "), "], but got input of size", size_text(dims)));
}

Groups layer_groups(const Args& a, Type x) {
  IntList reduced;
  auto n = static_cast<int64_t>(a.ints("normalized_shape").size());
  for (int64_t i = x.rank() - n; i < x.rank(); ++i) reduced.push_back(i);
  return groups_over(x, reduced);
}

void layer_norm_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("input");
  IntList shape = a.ints("normalized_shape"), stat(x.dims().begin(), x.dims().end());
  check_layer_norm(x, shape, a.opt_type("weight"), a.opt_type("bias"));
  DType t = param_dtype(a, {"weight", "bias"}, "LayerNormKernelImpl", true);
  std::fill(stat.end() - static_cast<std::ptrdiff_t>(shape.size()), stat.end(), 1);
  out.insert(out.end(), {x, ir::make_type(t, stat), ir::make_type(t, stat)});
}

void layer_norm_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = computed(l, "input"), weight = computed(l, "weight"), bias = computed(l, "bias");
  Groups g = layer_groups(l, x.type);
  Moments m = moments(b, x, g);
  V rstd = inverse_std(b, l, m.variance);
  V y = b.mul(m.centered, stretch(b, rstd, x, g.kept));
  if (weight) y = b.mul(y, b.broadcast_to(weight, x.dims()));
  if (bias) y = b.add(y, b.broadcast_to(bias, x.dims()));
  put_result(l, out, y);
  put_result(l, out, b.reshape(m.mean, l.out(1).dims()));
  put_result(l, out, b.reshape(rstd, l.out(2).dims()));
}

void layer_norm_backward_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("input");
  std::optional<Type> weight = a.opt_type("weight"), bias = a.opt_type("bias");
  IntList mask = a.ints("output_mask");
  check_layer_norm(x, a.ints("normalized_shape"), weight, bias);
  param_dtype(a, {"weight", "bias"}, "LayerNormBackwardKernelImpl");
  out.push_back(mask[0] ? x : Type());
  out.push_back(mask[1] && weight ? *weight : Type());
  out.push_back(mask[2] && bias ? *bias : Type());
}

void layer_norm_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad_out"), x = computed(l, "input"), weight = computed(l, "weight");
  Groups g = layer_groups(l, x.type);
  IntList stat;
  for (int64_t d : g.kept) stat.push_back(x.dim(static_cast<size_t>(d)));
  auto over_x = [&](std::string_view name) {
    return stretch(b, b.reshape(b.convert(l.in(name), x.dtype()), stat), x, g.kept);
  };
  V rstd = over_x("rstd"), normalized = b.mul(b.sub(x, over_x("mean")), rstd);
  V weighted = weight ? b.mul(grad, b.broadcast_to(weight, x.dims())) : grad;
  put_result(l, out, l.out(0) ? through_moments(b, weighted, normalized, rstd, g) : V());
  put_result(l, out,
             l.out(1) ? b.reduce(b.mul(grad, normalized), g.kept, Builder::Red::kSum) : V());
  put_result(l, out, l.out(2) ? b.reduce(grad, g.kept, Builder::Red::kSum) : V());
}

// --- group norm

void check_group_norm(const Args& a, Type x) {
  int64_t channels = a.i("C"), groups = a.i("group");
  if (groups <= 0)
    fail(Code::kRuntime, cat("Expected num groups to be greater than 0, got ", groups));
  if (channels % groups != 0)
    fail(Code::kRuntime,
         cat("Expected number of channels in input to be divisible by num_groups, but got "
             "input of shape ",
             size_text(x.dims()), " and num_groups=", groups));
  for (std::string_view name : {"weight", "bias"}) {
    std::optional<Type> t = a.opt_type(name);
    if (t && (t->rank() != 1 || t->dim(0) != channels))
      fail(Code::kRuntime,
           cat("Expected ", name, " to be a vector of size equal to the number of channels in ",
               "input, but got ", name, " of shape ", size_text(t->dims()), " and input of shape ",
               size_text(x.dims())));
  }
}

// [N, C, ...] as [N, groups, everything of a group].
IntList grouped_dims(const Args& a) {
  int64_t n = a.i("N"), groups = a.i("group");
  return {n, groups, a.i("C") / groups * a.i("HxW")};
}

// A per-channel vector over [N, C, HxW].
V per_channel(Builder& b, V v, V x) {
  int64_t channel = 1;
  return stretch(b, v, x, {&channel, 1});
}

void group_norm_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("input");
  check_group_norm(a, x);
  DType t = param_dtype(a, {"weight", "bias"}, "GroupNormKernelImpl", true);
  Type stat = ir::make_type(t, IntList{a.i("N"), a.i("group")});
  out.insert(out.end(), {x, stat, stat});
}

void group_norm_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = b.reshape(computed(l, "input"), grouped_dims(l));
  V weight = computed(l, "weight"), bias = computed(l, "bias");
  Groups g = groups_over(x.type, {2});
  Moments m = moments(b, x, g);
  V rstd = inverse_std(b, l, m.variance);
  V y = b.reshape(b.mul(m.centered, stretch(b, rstd, x, g.kept)),
                  IntList{l.i("N"), l.i("C"), l.i("HxW")});
  if (weight) y = b.mul(y, per_channel(b, weight, y));
  if (bias) y = b.add(y, per_channel(b, bias, y));
  put_result(l, out, b.reshape(y, l.out(0).dims()));
  put_result(l, out, m.mean);
  put_result(l, out, rstd);
}

void group_norm_backward_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("input");
  IntList mask = a.ints("output_mask");
  check_group_norm(a, x);
  DType t = param_dtype(a, {"weight", "mean", "rstd"}, "GroupNormBackwardKernelImpl");
  int64_t channels = a.i("C");
  Type param = ir::make_type(t, {&channels, 1});
  out.insert(out.end(), {mask[0] ? x : Type(), mask[1] ? param : Type(), mask[2] ? param : Type()});
}

void group_norm_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  const IntList channels{l.i("N"), l.i("C"), l.i("HxW")}, grouped = grouped_dims(l), others{0, 2};
  V grad = b.reshape(computed(l, "grad_out"), channels),
    x = b.reshape(computed(l, "input"), grouped);
  Groups g = groups_over(x.type, {2});
  auto over_x = [&](std::string_view name) {
    return stretch(b, b.reshape(b.convert(l.in(name), x.dtype()), IntList{grouped[0], grouped[1]}),
                   x, g.kept);
  };
  V rstd = over_x("rstd"), normalized = b.mul(b.sub(x, over_x("mean")), rstd);
  V weight = computed(l, "weight");
  V weighted = b.reshape(weight ? b.mul(grad, per_channel(b, weight, grad)) : grad, grouped);
  V gx = l.out(0) ? b.reshape(through_moments(b, weighted, normalized, rstd, g), l.out(0).dims())
                  : V();
  V products = b.mul(grad, b.reshape(normalized, channels));
  put_result(l, out, gx);
  put_result(l, out, l.out(1) ? b.reduce(products, others, Builder::Red::kSum) : V());
  put_result(l, out, l.out(2) ? b.reduce(grad, others, Builder::Red::kSum) : V());
}

// --- weight norm: w = v * g / |v|, the norm over all dims but one

Groups weight_groups(const Args& a, Type v) {
  int64_t dim = a.i("dim");
  if (dim != 0 && dim != v.rank() - 1)
    fail(Code::kRuntime,
         cat("_weight_norm_interface: fused kernels can only be applied for first or last dim, "
             "but got dim=",
             dim));
  IntList reduced;
  for (int64_t i = 0; i < v.rank(); ++i)
    if (i != dim) reduced.push_back(i);
  return groups_over(v, reduced);
}

void weight_norm_type(const Args& a, std::vector<Type>& out) {
  Type v = a.type("v"), g = a.type("g");
  weight_groups(a, v);
  out.push_back(v);
  out.push_back(g.with(g.dtype() == DType::kBF16 ? DType::kF32 : g.dtype()));
}

void weight_norm_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V v = computed(l, "v"), g = computed(l, "g");
  Groups groups = weight_groups(l, v.type);
  V norm = b.sqrt(b.reduce(b.mul(v, v), groups.reduced, Builder::Red::kSum));
  V scale = b.div(b.reshape(g, norm.dims()), norm);
  put_result(l, out, b.mul(v, stretch(b, scale, v, groups.kept)));
  put_result(l, out, b.reshape(norm, l.out(1).dims()));
}

void weight_norm_backward_type(const Args& a, std::vector<Type>& out) {
  weight_groups(a, a.type("saved_v"));
  out.insert(out.end(), {a.type("saved_v"), a.type("saved_g")});
}

void weight_norm_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad_w"), v = computed(l, "saved_v");
  Groups groups = weight_groups(l, v.type);
  IntList dims{v.dim(static_cast<size_t>(groups.kept[0]))};
  V g = b.reshape(computed(l, "saved_g"), dims), norm = b.reshape(computed(l, "saved_norms"), dims);
  V dot = b.reduce(b.mul(grad, v), groups.reduced, Builder::Red::kSum);
  V along = b.div(dot, b.mul(norm, norm));
  V across = b.sub(grad, b.mul(v, stretch(b, along, v, groups.kept)));
  put_result(l, out, b.mul(across, stretch(b, b.div(g, norm), v, groups.kept)));
  put_result(l, out, b.reshape(b.div(dot, norm), l.out(1).dims()));
}

// --- renorm: slices along `dim` whose p-norm is above maxnorm are scaled down to it

void check_renorm(const Args& a) {
  a.dim("dim", a.type("self").rank());
  DType t = a.type("self").dtype();
  if (!ir::is_float(t) && !ir::is_complex(t))
    fail(Code::kRuntime,
         cat("linalg.vector_norm: Expected a floating point or complex tensor as input. Got ",
             eager_name(t).scalar));
}

void renorm_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = computed(l, "self"), size = b.abs(x);
  int64_t dim = l.dim("dim", x.rank());
  IntList reduced;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != dim) reduced.push_back(i);
  V norm = norm_of(l, "p", size, reduced);
  V most = l.number("maxnorm", norm.type);
  V factor = b.select(b.compare(norm, most, hlo::Cmp::kGt), b.div(most, b.add(norm, 1e-7)),
                      b.ones(norm.type));
  out.push_back(
      b.convert(b.mul(x, stretch(b, b.convert(factor, x.dtype()), x, {&dim, 1})), l.out().dtype()));
}

}  // namespace

// --- shared

DType param_dtype(const Args& a, std::initializer_list<std::string_view> params,
                  std::string_view kernel, bool forward) {
  DType x = a.type("input").dtype(), first = x;
  bool found = false;
  for (std::string_view name : params)
    if (std::optional<Type> t = a.opt_type(name); t && !found) first = t->dtype(), found = true;
  if (first != x) {
    for (std::string_view name : params)
      if (std::optional<Type> t = a.opt_type(name); t && t->dtype() != DType::kF32)
        fail(Code::kRuntime, "mixed dtype (CPU): expect parameter to have scalar type of Float");
    if (x != DType::kF16 && x != DType::kBF16)
      fail(Code::kRuntime, "mixed dtype (CPU): all inputs must share same datatype.");
  }
  if (!ir::is_float(x)) fail(Code::kNotImplemented, not_implemented_for(kernel, x));
  for (std::string_view name : params)
    if (std::optional<Type> t = a.opt_type(name); forward && t && t->dtype() != first)
      fail(Code::kRuntime, expected_scalar_type(first, t->dtype()));
  return first;
}

Groups groups_over(Type x, IntList reduced) {
  Groups g;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (std::ranges::find(reduced, i) == reduced.end())
      g.kept.push_back(i);
    else
      g.count *= x.dim(static_cast<size_t>(i));
  }
  g.reduced = std::move(reduced);
  return g;
}

Moments moments(Builder& b, V x, const Groups& g) {
  auto mean = [&](V v) {
    return b.div(b.reduce(v, g.reduced, Builder::Red::kSum), static_cast<double>(g.count));
  };
  V m = mean(x), centered = b.sub(x, stretch(b, m, x, g.kept));
  if (g.count == 0) m = b.zeros(m.type);  // eager's mean of nothing; its variance is NaN
  return {m, mean(b.mul(centered, centered)), centered};
}

V inverse_std(Builder& b, Lowering& l, V variance) {
  V eps = l.number("eps", variance.type), r = b.rsqrt(b.add(variance, eps));
  bool fixed = !l.input("eps");
  if (fixed && l.f("eps") != 0) return r;
  V bare = b.compare(variance, 0, hlo::Cmp::kEq);
  if (!fixed) bare = b.and_(bare, b.compare(eps, 0, hlo::Cmp::kEq));
  return b.select(bare, b.zeros(r.type), r);
}

V through_moments(Builder& b, V grad, V normalized, V rstd, const Groups& g) {
  auto mean = [&](V v) {
    V m = b.div(b.reduce(v, g.reduced, Builder::Red::kSum), static_cast<double>(g.count));
    return stretch(b, m, grad, g.kept);
  };
  V along = b.mul(normalized, mean(b.mul(grad, normalized)));
  return b.mul(b.sub(b.sub(grad, mean(grad)), along), rstd);
}

V computed(Lowering& l, std::string_view name) {
  V v = l.opt(name);
  return v ? l.builder().convert(v, ir::compute_dtype(v.dtype())) : v;
}

void put_result(Lowering& l, std::vector<V>& out, V v) {
  out.push_back(v ? l.builder().convert(v, l.out(out.size()).dtype()) : v);
}

Family norm() {
  static const Row kRows[] = {
      {.name = "aten::native_layer_norm",
       .type = layer_norm_type,
       .lower = layer_norm_lower,
       .general = "eps",
       .faster_on_host = faster_on_host::layer_norm},
      {.name = "aten::native_layer_norm_backward",
       .type = layer_norm_backward_type,
       .lower = layer_norm_backward_lower,
       .faster_on_host = faster_on_host::layer_norm},
      {.name = "aten::native_group_norm",
       .type = group_norm_type,
       .lower = group_norm_lower,
       .layout = Layout::kSuggested,
       .general = "eps"},
      {.name = "aten::native_group_norm_backward",
       .type = group_norm_backward_type,
       .lower = group_norm_backward_lower},
      {.name = "aten::native_batch_norm",
       .type = batch_norm_type,
       .lower = batch_norm_lower,
       .layout = Layout::kSuggested,
       .numbers = "momentum",
       .writes = "running_mean running_var",
       .general = "eps",
       .faster_on_host = faster_on_host::batch_norm},
      {.name = "aten::_native_batch_norm_legit",
       .type = batch_norm_type,
       .lower = batch_norm_lower,
       .layout = Layout::kSuggested,
       .numbers = "momentum",
       .writes = "running_mean running_var",
       .general = "eps"},
      {.name = "aten::_native_batch_norm_legit_functional",
       .type = batch_norm_functional_type,
       .lower = batch_norm_lower,
       .layout = Layout::kSuggested,
       .numbers = "momentum",
       .general = "eps"},
      {.name = "aten::_native_batch_norm_legit.no_stats",
       .type = batch_norm_stateless_type,
       .lower = batch_norm_lower,
       .layout = Layout::kSuggested,
       .numbers = "momentum",
       .general = "eps"},
      {.name = "aten::_batch_norm_with_update",
       .type = batch_norm_update_type,
       .lower = batch_norm_update_lower,
       .layout = Layout::kSuggested,
       .numbers = "momentum",
       .writes = "running_mean running_var",
       .general = "eps"},
      {.name = "aten::_batch_norm_with_update_functional",
       .type = batch_norm_update_type,
       .lower = batch_norm_update_lower,
       .layout = Layout::kSuggested,
       .numbers = "momentum",
       .general = "eps"},
      {.name = "aten::native_batch_norm_backward",
       .type = batch_norm_backward_type,
       .lower = batch_norm_backward_lower,
       .layout = Layout::kSuggested,
       .general = "eps",
       .faster_on_host = faster_on_host::batch_norm_backward},
      {.name = "aten::batch_norm_backward",
       .type = batch_norm_backward_type,
       .lower = batch_norm_backward_lower,
       .layout = Layout::kSuggested,
       .general = "eps"},
      {.name = "aten::renorm",
       .lower = renorm_lower,
       .baked = "p",
       .check = check_renorm,
       .general = "p",
       .refuses_numbers = true},
      {.name = "aten::_weight_norm_interface",
       .type = weight_norm_type,
       .lower = weight_norm_lower},
      {.name = "aten::_weight_norm_interface_backward",
       .type = weight_norm_backward_type,
       .lower = weight_norm_backward_lower},
  };
  return kRows;
}

}  // namespace tp::ops
