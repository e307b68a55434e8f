// Activations and the elementwise backward ops. Formulas follow eager's CPU kernels, boundaries
// included.
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/core/numbers.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

V one_minus(Builder& b, V x) { return b.sub(b.ones(x.type), x); }
V keep_where(Builder& b, V pred, V x) { return b.select(pred, x, b.zeros(x.type)); }

// --- silu, gelu ----------------------------------------------------------------------------------

V silu(Builder& b, V x) { return b.mul(x, b.logistic(x)); }
V silu_backward(Builder& b, V g, V x) {
  V s = b.logistic(x);
  return b.mul(g, b.mul(s, b.add(b.mul(x, one_minus(b, s)), 1.0)));
}

V gelu_erf(Builder& b, V x) {
  V cdf = b.mul(b.add(b.unary("chlo.erf", b.mul(x, std::numbers::sqrt2 / 2)), 1.0), 0.5);
  return b.mul(x, cdf);
}

constexpr double kGeluCubic = 0.044715;
const double kGeluScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

V gelu_inner(Builder& b, V x) {
  return b.mul(b.add(x, b.mul(b.mul(b.mul(x, x), x), kGeluCubic)), kGeluScale);
}
V gelu_tanh(Builder& b, V x) { return b.mul(b.mul(x, 0.5), b.add(b.tanh(gelu_inner(b, x)), 1.0)); }

V gelu_erf_backward(Builder& b, V g, V x) {
  V cdf = b.mul(b.add(b.unary("chlo.erf", b.mul(x, std::numbers::sqrt2 / 2)), 1.0), 0.5);
  V pdf =
      b.mul(b.exp(b.mul(b.mul(x, x), -0.5)), std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2);
  return b.mul(g, b.add(cdf, b.mul(x, pdf)));
}

V gelu_tanh_backward(Builder& b, V g, V x) {
  V t = b.tanh(gelu_inner(b, x));
  V left = b.mul(b.add(t, 1.0), 0.5);
  V slope = b.mul(b.add(b.mul(b.mul(x, x), 3 * kGeluCubic), 1.0), kGeluScale);
  V right = b.mul(b.mul(b.mul(x, 0.5), one_minus(b, b.mul(t, t))), slope);
  return b.mul(g, b.add(left, right));
}

void check_gelu(const Args& a) {
  std::string_view how = a.text_or("approximate", "none");
  if (how != "none" && how != "tanh")
    fail(Code::kRuntime, "approximate argument must be either none or tanh.");
}

void gelu(Lowering& l, std::vector<V>& out) {
  bool tanh = l.text_or("approximate", "none") == "tanh";
  tanh ? unary<gelu_tanh>(l, out) : unary<gelu_erf>(l, out);
}
void gelu_backward(Lowering& l, std::vector<V>& out) {
  bool tanh = l.text_or("approximate", "none") == "tanh";
  tanh ? with_args<gelu_tanh_backward, "grad_output", "self">(l, out)
       : with_args<gelu_erf_backward, "grad_output", "self">(l, out);
}

// --- sigmoid, tanh and their kin -----------------------------------------------------------------

V conj_of(Builder& b, V x) { return ir::is_complex(x.dtype()) ? b.unary("chlo.conj", x) : x; }
V sigmoid_backward(Builder& b, V g, V y) { return b.mul(g, conj_of(b, b.mul(one_minus(b, y), y))); }
V tanh_backward(Builder& b, V g, V y) { return b.mul(g, conj_of(b, one_minus(b, b.mul(y, y)))); }

void softplus_rule(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t), beta = number_or(l, "beta", t, 1);
  V scaled = b.mul(x, beta);
  V soft = b.div(b.unary("stablehlo.log_plus_one", b.exp(scaled)), beta);
  put(l, out, b.select(b.compare(scaled, l.number("threshold", t), Cmp::kGt), x, soft));
}
void softplus_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V g = l.number("grad_output", t), x = l.number("self", t);
  V scaled = b.mul(x, number_or(l, "beta", t, 1));
  V z = b.exp(scaled);
  V soft = b.div(b.mul(g, z), b.add(z, 1.0));
  put(l, out, b.select(b.compare(scaled, l.number("threshold", t), Cmp::kGt), g, soft));
}

// Results: log(sigmoid(x)), and exp(-|x|) for the backward op.
void log_sigmoid_forward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.number("self", compute_type(l));
  V buffer = b.exp(b.neg(b.abs(x)));
  put(l, out, b.sub(b.min(x, 0.0), b.unary("stablehlo.log_plus_one", buffer)));
  put(l, out, buffer);
}
void log_sigmoid_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V g = l.number("grad_output", t), x = l.number("self", t);
  V z = b.exp(b.neg(b.abs(x)));
  V below = b.compare(x, 0, Cmp::kLt);
  V tail = b.div(z, b.add(z, 1.0));
  V sign = b.select(below, b.ones(t), b.constant(-1, t));
  V one = b.select(below, b.ones(t), b.zeros(t));
  put(l, out, b.mul(g, b.sub(one, b.mul(sign, tail))));
}

void logit_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V g = l.number("grad_output", t), x = l.number("self", t);
  V slope = b.div(g, b.mul(x, one_minus(b, x)));
  double eps = l.f_or("eps", -1);
  V one = b.constant(1.0, ir::scalar_type(DType::kF64));
  V from = eps < 0 ? b.zeros(one.type) : l.number("eps", one.type);
  // Eager rounds the bounds to the tensor's own dtype.
  auto bound = [&](V v) {
    return b.broadcast_to(b.convert(b.convert(v, l.out().dtype()), t.dtype()), t.dims());
  };
  V low = bound(from), high = bound(b.sub(one, from));
  V inside = b.and_(b.compare(x, low, Cmp::kGe), b.compare(x, high, Cmp::kLe));
  V rest = eps < 0 ? b.constant(std::nan(""), t) : b.zeros(t);
  put(l, out, b.select(inside, slope, rest));
}

// --- elu, relu and piecewise linear ones ---------------------------------------------------------

struct Elu {
  V negative, positive, input;  // factors
};
Elu elu_factors(Lowering& l, Type t) {
  V scale = number_or(l, "scale", t, 1);
  return {l.builder().mul(number_or(l, "alpha", t, 1), scale), scale,
          number_or(l, "input_scale", t, 1)};
}

void elu(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t);
  Elu k = elu_factors(l, t);
  V low = b.mul(b.unary("stablehlo.exponential_minus_one", b.mul(x, k.input)), k.negative);
  put(l, out, b.select(b.compare(x, 0, Cmp::kLt), low, b.mul(x, k.positive)));
}
void elu_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V g = l.number("grad_output", t), x = l.number("self_or_result", t);
  Elu k = elu_factors(l, t);
  V slope = l.b("is_result") ? b.add(x, k.negative) : b.mul(b.exp(b.mul(x, k.input)), k.negative);
  V low = b.mul(g, b.mul(k.input, slope));
  put(l, out, b.select(b.compare(x, 0, Cmp::kGt), b.mul(g, k.positive), low));
}

V relu(Builder& b, V x) { return b.max(x, b.zeros(x.type)); }

void threshold(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t);
  V low = b.compare(x, l.number("threshold", t), Cmp::kLe);
  put(l, out, b.select(low, number_or(l, "value", t, 1), x));
}
V threshold_backward(Builder& b, V g, V x, V limit) {
  return b.select(b.compare(x, limit, Cmp::kLe), b.zeros(g.type), g);
}

void leaky_relu(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t);
  put(l, out, b.select(b.compare(x, 0, Cmp::kGt), x, b.mul(x, l.number("negative_slope", t))));
}
V leaky_relu_backward(Builder& b, V g, V x, V slope) {
  return b.select(b.compare(x, 0, Cmp::kGt), g, b.mul(g, slope));
}
V prelu(Builder& b, V x, V w) { return b.select(b.compare(x, 0, Cmp::kGt), x, b.mul(x, w)); }
void prelu_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V g = l.number("grad_output", t), x = l.number("self", t), w = l.number("weight", t);
  V above = b.compare(x, 0, Cmp::kGt);
  put(l, out, b.select(above, g, b.mul(w, g)));
  put(l, out, b.select(above, b.zeros(t), b.mul(x, g)));
}

V hardtanh(Builder& b, V x, V low, V high) { return b.min(b.max(x, low), high); }
V hardtanh_backward(Builder& b, V g, V x, V low, V high) {
  return keep_where(b, b.and_(b.compare(x, low, Cmp::kGt), b.compare(x, high, Cmp::kLt)), g);
}

V clamped_shift(Builder& b, V x) { return b.min(b.max(b.add(x, 3.0), 0.0), 6.0); }
V hardsigmoid(Builder& b, V x) { return b.div(clamped_shift(b, x), 6.0); }
V hardsigmoid_backward(Builder& b, V g, V x) {
  V inside = b.and_(b.compare(x, -3, Cmp::kGt), b.compare(x, 3, Cmp::kLt));
  return keep_where(b, inside, b.mul(g, 1.0 / 6));
}
V hardswish(Builder& b, V x) { return b.div(b.mul(x, clamped_shift(b, x)), 6.0); }
V hardswish_backward(Builder& b, V g, V x) {
  V middle = b.mul(g, b.add(b.div(x, 3.0), 0.5));
  V upper = b.select(b.compare(x, 3, Cmp::kGe), g, middle);
  return b.select(b.compare(x, -3, Cmp::kLe), b.zeros(g.type), upper);
}

// NaN passes through both shrinks.
void hardshrink(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t), limit = l.number("lambd", t);
  V inside = b.and_(b.compare(x, b.neg(limit), Cmp::kGe), b.compare(x, limit, Cmp::kLe));
  put(l, out, b.select(inside, b.zeros(t), x));
}
void softshrink(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V x = l.number("self", t), limit = number_or(l, "lambd", t, 1);
  V above = b.compare(x, limit, Cmp::kGt), below = b.compare(x, b.neg(limit), Cmp::kLt);
  V rest = b.mul(x, b.zeros(t));
  put(l, out, b.select(above, b.sub(x, limit), b.select(below, b.add(x, limit), rest)));
}
template <Text grad>
void shrink_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V g = l.number(grad.text, t), x = l.number("self", t), limit = number_or(l, "lambd", t, 1);
  V outside = b.or_(b.compare(x, b.neg(limit), Cmp::kLt), b.compare(x, limit, Cmp::kGt));
  put(l, out, keep_where(b, outside, g));
}

// --- glu: the first half, gated by the second ----------------------------------------------------

struct Halves {
  V first, second;
};
Halves halves(Lowering& l, V x) {
  int64_t dim = l.dim("dim", x.rank()), n = x.dim(static_cast<size_t>(dim));
  Builder& b = l.builder();
  return {b.slice_dim(x, dim, 0, n / 2), b.slice_dim(x, dim, n / 2, n)};
}
V compute(Lowering& l, std::string_view name) {
  V x = l.in(name);
  return l.builder().convert(x, ir::compute_dtype(l.out().dtype()));
}
void glu(Lowering& l, std::vector<V>& out) {
  Halves h = halves(l, compute(l, "self"));
  put(l, out, l.builder().mul(h.first, l.builder().logistic(h.second)));
}
void glu_backward(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = compute(l, "self"), g = compute(l, "grad_output");
  Halves h = halves(l, x);
  V s = b.logistic(h.second);
  V first = b.mul(s, g);
  V second = b.mul(b.mul(one_minus(b, s), s), b.mul(g, h.first));
  std::array<V, 2> parts{first, second};
  put(l, out, b.concat(parts, l.dim("dim", x.rank())));
}

// --- types ---------------------------------------------------------------------------------------

// relu and hardtanh are clamps in eager.
void refuse_complex(Type t) {
  if (ir::is_complex(t.dtype()))
    fail(Code::kNotImplemented, "clamp is not supported for complex types");
}

void type_relu(const Args& a, std::vector<Type>& out) {
  refuse_complex(a.type("self"));
  if (a.type("self").dtype() == DType::kPred)
    fail(Code::kRuntime, "Boolean inputs not supported for relu");
  type_same(a, out);
}

void type_hardtanh(const Args& a, std::vector<Type>& out) {
  Type t = a.type("self");
  if (t.dtype() == DType::kPred) fail(Code::kRuntime, "Bool inputs not supported for hardtanh");
  refuse_complex(t);
  out.push_back(t);
}

void type_log_sigmoid(const Args& a, std::vector<Type>& out) { out.assign(2, a.type("self")); }

template <int count>
void type_prelu(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self"), w = a.type("weight");
  if (x.dtype() != w.dtype()) fail(Code::kRuntime, found_dtype(w.dtype(), x.dtype()));
  out.assign(count, x.with(broadcast_dims(x.dims(), w.dims())));
}

const Row kRows[] = {
    {.name = "aten::silu",
     .lower = unary<silu>,
     .kernels = {{"silu_cpu", takes::kInexact}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::silu_backward",
     .lower = with_args<silu_backward, "grad_output", "self">,
     .kernels = {{"silu_backward_cpu", takes::kInexact}}},
    {.name = "aten::gelu",
     .lower = gelu,
     .check = check_gelu,
     .kernels = {{"GeluKernelImpl", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::gelu_backward",
     .lower = gelu_backward,
     .check = check_gelu,
     .kernels = {{"GeluBackwardKernelImpl", takes::kFloats}}},
    {.name = "aten::sigmoid_backward",
     .lower = with_args<sigmoid_backward, "grad_output", "output">,
     .kernels = {{"sigmoid_backward_cpu", takes::kInexact}}},
    {.name = "aten::tanh_backward",
     .lower = with_args<tanh_backward, "grad_output", "output">,
     .kernels = {{"tanh_backward_cpu", takes::kInexact}}},
    {.name = "aten::softplus",
     .lower = softplus_rule,
     .kernels = {{"softplus_cpu", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::softplus_backward",
     .lower = softplus_backward,
     .kernels = {{"softplus_backward_cpu", takes::kFloats}}},
    {.name = "aten::log_sigmoid_forward",
     .type = type_log_sigmoid,
     .lower = log_sigmoid_forward,
     .layout = Layout::kIterator,
     .kernels = {{"log_sigmoid_cpu", takes::kFloats}},
     .iterates = Iterates::kNo},
    {.name = "aten::log_sigmoid_backward",
     .type = type_of<"grad_output">,
     .lower = log_sigmoid_backward,
     .layout = Layout::kIterator,
     .kernels = {{"log_sigmoid_backward_cpu", takes::kFloats}}},
    {.name = "aten::logit_backward",
     .lower = logit_backward,
     .general = "eps",
     .split = split_eps,
     .kernels = {{"logit_backward_cpu", takes::kFloats}}},

    {.name = "aten::relu",
     .type = type_relu,
     .lower = unary<relu>,
     .layout = Layout::kIterator,
     .recomputed = true},
    {.name = "aten::threshold",
     .lower = threshold,
     .kernels = {{"threshold_cpu", takes::kNumbers}},
     .recomputed = true},
    {.name = "aten::threshold_backward",
     .lower = with_args<threshold_backward, "grad_output", "self", "threshold">,
     .kernels = {{"threshold_cpu", takes::kNumbers}}},
    {.name = "aten::elu",
     .lower = elu,
     .kernels = {{"elu_cpu", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::elu_backward",
     .lower = elu_backward,
     .kernels = {{"elu_backward_cpu", takes::kFloats}},
     .refuses_numbers = true},
    {.name = "aten::leaky_relu",
     .lower = leaky_relu,
     .kernels = {{"leaky_relu_cpu", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::leaky_relu_backward",
     .lower = with_args<leaky_relu_backward, "grad_output", "self", "negative_slope">,
     .kernels = {{"leaky_relu_backward_cpu", takes::kFloats}},
     .refuses_numbers = true},
    {.name = "aten::_prelu_kernel",
     .type = type_prelu<1>,
     .lower = with_args<prelu, "self", "weight">,
     .layout = Layout::kCopyOfFirst,
     .kernels = {{"prelu_cpu", takes::kFloats}},
     .iterates = Iterates::kYes},
    {.name = "aten::_prelu_kernel_backward",
     .type = type_prelu<2>,
     .lower = prelu_backward,
     .layout = Layout::kIterator,
     .kernels = {{"prelu_backward_cpu", takes::kFloats}}},
    {.name = "aten::hardtanh",
     .type = type_hardtanh,
     .lower = with_args<hardtanh, "self", "min_val", "max_val">,
     .layout = Layout::kCopyOfFirst,
     .iterates = Iterates::kYes,
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::hardtanh_backward",
     .type = type_of<"self">,
     .lower = with_args<hardtanh_backward, "grad_output", "self", "min_val", "max_val">,
     .layout = Layout::kIterator,
     .kernels = {{"hardshrink_backward_cpu", takes::kFloats}}},
    {.name = "aten::hardsigmoid",
     .lower = unary<hardsigmoid>,
     .kernels = {{"hardsigmoid_cpu", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::hardsigmoid_backward",
     .lower = with_args<hardsigmoid_backward, "grad_output", "self">,
     .kernels = {{"hardsigmoid_backward", takes::kFloats}}},
    {.name = "aten::hardswish",
     .type = type_same,
     .lower = unary<hardswish>,
     .layout = Layout::kIterator,
     .kernels = {{"hardswish_cpu", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::hardswish_backward",
     .type = type_of<"grad_output">,
     .lower = with_args<hardswish_backward, "grad_output", "self">,
     .layout = Layout::kIterator,
     .kernels = {{"hardswish_backward_cpu", takes::kFloats}}},
    {.name = "aten::hardshrink",
     .lower = hardshrink,
     .kernels = {{"hardshrink_cpu", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::hardshrink_backward",
     .lower = shrink_backward<"grad_out">,
     .kernels = {{"shrink_backward_cpu", takes::kFloats}}},
    {.name = "aten::softshrink",
     .lower = softshrink,
     .kernels = {{"softshrink_check", takes::kFloats}},
     .out = {.check = out_wants<found_words>},
     .refuses_numbers = true},
    {.name = "aten::softshrink_backward",
     .lower = shrink_backward<"grad_output">,
     .kernels = {{"shrink_backward_cpu", takes::kFloats}}},

    {.name = "aten::glu", .lower = glu, .kernels = {{"glu_cpu", takes::kFloats}}},
    {.name = "aten::glu_backward",
     .type = type_of<"self">,
     .lower = glu_backward,
     .iterates = Iterates::kYes},
};

}  // namespace

Family activation() { return kRows; }

}  // namespace tp::ops
