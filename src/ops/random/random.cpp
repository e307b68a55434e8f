// Random ops. Each has two extra operands, seed and offset: run-time numbers, so that the program
// stays the same from step to step. Half types compute in float32. Any thread.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/index/indexing.h"
#include "ops/random/multinomial.h"
#include "ops/random/random_bits.h"
#include "ops/random/random_reject.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
using Red = Builder::Red;

// The type a distribution is drawn in: float32 for half types and integers.
Type draw_type(Type t) { return t.with(t.dtype() == DType::kF64 ? DType::kF64 : DType::kF32); }

// Digits of a float's mantissa: eager draws no finer, so that nothing rounds up to 1.
int digits_of(DType t) {
  switch (t) {
    case DType::kF64:
      return 53;
    case DType::kF16:
      return 11;
    case DType::kBF16:
      return 8;
    default:
      return 24;
  }
}

// For complex results `draw` gives both parts at once, as [2, dims...].
template <class Draw>
void real_or_pair(Lowering& l, std::vector<V>& out, const Draw& draw) {
  Builder& b = l.builder();
  Type t = l.out();
  if (!ir::is_complex(t.dtype())) return put(l, out, draw(t));
  IntList dims = dims_of(t);
  dims.insert(dims.begin(), 2);
  V both = draw(ir::make_type(ir::real_dtype(t.dtype()), dims));
  V re = b.reshape(b.slice_dim(both, 0, 0, 1), t.dims());
  V im = b.reshape(b.slice_dim(both, 0, 1, 2), t.dims());
  out.push_back(make_complex(b, re, im));
}

void need_float(const Args& a, const char* kernel) {
  DType t = a.type("self").dtype();
  if (!ir::is_float(t)) fail(Code::kNotImplemented, not_implemented_for(kernel, t));
}

// --- continuous distributions

void uniform_type(const Args& a, std::vector<Type>& out) {
  if (!ir::is_complex(a.type("self").dtype())) need_float(a, "check_uniform_bounds");
  type_same(a, out);
}
void uniform_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Random random(l);
  real_or_pair(l, out, [&](Type t) {
    V u = random.uniform(draw_type(t), digits_of(t.dtype()));
    if (!l.has("from") && !l.has("to")) return u;
    V from = number_or(l, "from", u.type, 0), to = number_or(l, "to", u.type, 1);
    return b.add(b.mul(u, b.sub(to, from)), from);
  });
}

void normal_type(const Args& a, std::vector<Type>& out) {
  if (!ir::is_complex(a.type("self").dtype())) need_float(a, "normal_kernel_cpu");
  type_same(a, out);
}
// A complex number's parts have half its variance each.
void normal_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Random random(l);
  real_or_pair(l, out, [&](Type t) {
    V z = random.normal(draw_type(t));
    if (ir::is_complex(l.out().dtype())) z = b.mul(z, std::numbers::sqrt2 / 2);
    z = b.mul(z, number_or(l, "std", z.type, 1));
    return b.add(z, number_or(l, "mean", z.type, 0));
  });
}

void normal_tensors_type(const Args& a, std::vector<Type>& out) {
  Type mean = a.type("mean"), std = a.type("std");
  if (ir::is_complex(std.dtype()))
    fail(Code::kRuntime, "normal expects standard deviation to be non-complex");
  out.push_back(ir::make_type(mean.dtype(), broadcast_dims(mean.dims(), std.dims())));
}
// One of them a Python number: the other gives the type.
template <Text tensor>
void normal_tensor_type(const Args& a, std::vector<Type>& out) {
  out.push_back(a.type(tensor.text));
}

void log_normal_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V z = Random(l).normal(draw_type(l.out()));
  z = b.add(b.mul(z, number_or(l, "std", z.type, 2)), number_or(l, "mean", z.type, 1));
  put(l, out, b.exp(z));
}
void cauchy_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V angle = b.mul(b.sub(Random(l).open_uniform(draw_type(l.out())), 0.5), std::numbers::pi);
  V tan = b.div(b.unary("stablehlo.sine", angle), b.unary("stablehlo.cosine", angle));
  put(l, out,
      b.add(b.mul(tan, number_or(l, "sigma", tan.type, 1)), number_or(l, "median", tan.type, 0)));
}
void exponential_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V e = b.neg(b.log(Random(l).open_uniform(draw_type(l.out()))));
  put(l, out, b.div(e, number_or(l, "lambd", e.type, 1)));
}
[[noreturn]] void not_continuous(std::string_view what, std::string_view dtype) {
  fail(Code::kRuntime,
       cat(what,
           " distribution is a continuous probability distribution. dtype must be a "
           "floating point but you specified ",
           dtype));
}
void cauchy_type(const Args& a, std::vector<Type>& out) {
  DType t = a.type("self").dtype();
  if (!ir::is_float(t)) not_continuous("Cauchy", eager_name(t).cpp);
  type_same(a, out);
}
void exponential_type(const Args& a, std::vector<Type>& out) {
  DType t = a.type("self").dtype();
  if (!ir::is_float(t)) not_continuous("Exponential", eager_name(t).scalar);
  type_same(a, out);
}
void log_normal_type(const Args& a, std::vector<Type>& out) {
  need_float(a, "log_normal_cpu");
  type_same(a, out);
}

// --- discrete ones

// The count of trials up to the first success: at least one.
void geometric_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V u = Random(l).open_uniform(draw_type(l.out()));
  V p = l.number("p", u.type);
  V trials = b.div(b.log(u), b.unary("stablehlo.log_plus_one", b.neg(p)));
  put(l, out, b.max(b.unary("stablehlo.ceil", trials), 1.0));
}

// 1 with probability p (the draw's type), else 0.
void push_bernoulli(Lowering& l, std::vector<V>& out, V p) {
  Builder& b = l.builder();
  V u = Random(l).uniform(p.type);
  put(l, out, b.compare(u, p, Cmp::kLt));
}
void bernoulli_p_lower(Lowering& l, std::vector<V>& out) {
  push_bernoulli(l, out, number_or(l, "p", draw_type(l.out()), 0.5));
}
void bernoulli_tensor_type(const Args& a, std::vector<Type>& out) {
  DType p = a.type(a.operand("p") >= 0 ? "p" : "self").dtype();
  if (!ir::is_float(p))
    fail(Code::kNotImplemented, not_implemented_for("bernoulli_tensor_cpu_p_", p));
  type_same(a, out);
}
void bernoulli_tensor_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V p = l.in(l.operand("p") >= 0 ? "p" : "self");
  Type t = draw_type(p.type).with(l.out().dims());
  push_bernoulli(l, out, b.broadcast_to(b.convert(p, t.dtype()), t.dims()));
}

// Largest integer of random_(): all of an integer type, the exact ones of a float.
uint64_t largest_integer(DType t) {
  if (ir::is_float(t)) return uint64_t{1} << digits_of(t);
  if (t == DType::kPred) return 1;
  int bits = 8 * ir::dtype_size(t) - (ir::is_unsigned(t) ? 0 : 1);
  return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}
void random_type(const Args& a, std::vector<Type>& out) {
  DType t = a.type("self").dtype();
  if (ir::is_complex(t)) fail(Code::kNotImplemented, not_implemented_for("random_kernel_cpu", t));
  type_same(a, out);
}
void random_lower(Lowering& l, std::vector<V>& out) {
  put(l, out, Random(l).below(l.out().dims(), largest_integer(l.out().dtype()) + 1));
}
void random_range_type(const Args& a, std::vector<Type>& out) {
  random_type(a, out);
  DType t = a.type("self").dtype();
  int64_t from = a.i_or("from", 0);
  bool bounded = a.has("to");
  int64_t to = a.i_or("to", 0);
  if (bounded && from >= to)
    fail(Code::kRuntime,
         cat("random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", to));
  constexpr int64_t kLargestHalf = 65504;  // the other floats reach beyond int64
  bool half = t == DType::kF16;
  if ((ir::is_float(t) && !half) || t == DType::kS64 || t == DType::kU64) return;
  int64_t high = half ? kLargestHalf : static_cast<int64_t>(largest_integer(t));
  int64_t low = half ? -high : ir::is_unsigned(t) ? 0 : -high - 1;
  if (from < low || from > high)
    fail(Code::kRuntime, cat("from is out of bounds for ", eager_name(t).cpp));
  if (bounded && (to - 1 < low || to - 1 > high))
    fail(Code::kRuntime, cat("to - 1 is out of bounds for ", eager_name(t).cpp));
}
// One past the last number; 0 stands for 2^64.
uint64_t range_end(const Args& a, DType t) {
  if (a.has("to")) return static_cast<uint64_t>(a.i("to"));
  return t == DType::kS64 ? uint64_t{1} << 63 : largest_integer(t) + 1;
}
// How many bits are drawn depends on the count.
void split_range(const Args& a, std::vector<uint64_t>& structure, std::vector<Number>& values) {
  int64_t from = a.i_or("from", 0);
  uint64_t end = range_end(a, a.type("self").dtype()), count = end - static_cast<uint64_t>(from);
  structure.push_back(static_cast<uint64_t>(Random::width(count)));
  values.push_back({false, from});
  values.push_back({false, static_cast<int64_t>(end)});
}
void random_range_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  int64_t from = l.i_or("from", 0);
  uint64_t end = range_end(l, l.out().dtype()), count = end - static_cast<uint64_t>(from);
  bool varies = std::ranges::any_of(l.inputs(), [](const V& v) { return static_cast<bool>(v); });
  Type s64 = ir::scalar_type(DType::kS64);
  V first = b.constant_int(from, s64), last = b.constant_int(static_cast<int64_t>(end), s64);
  if (varies && l.inputs()[0]) first = l.inputs()[0];
  if (varies && l.inputs()[1]) last = l.inputs()[1];
  V v = Random(l).below(l.out().dims(), count, varies ? b.sub(last, first) : V{});
  put(l, out, from == 0 && !varies ? v : b.add(v, b.broadcast_to(first, v.dims())));
}

// --- choices

void randperm_type(const Args& a, std::vector<Type>& out) {
  int64_t n = a.i("n");
  DType t = a.dtype_or("dtype", DType::kS64);
  if (n < 0)
    fail(Code::kRuntime, cat("Trying to create tensor with negative dimension ", n, ": [", n, "]"));
  if (ir::is_int(t) && static_cast<uint64_t>(n) > largest_integer(t) + (t == DType::kS64 ? 0 : 1))
    fail(Code::kRuntime, cat("n cannot be greater than 2^", 8 * ir::dtype_size(t), " for ",
                             eager_name(t).scalar, " type"));
  out.push_back(ir::make_type(t, IntList{n}));
}
// 0..n-1 in the order of random keys of 64 bits.
void randperm_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  V in[] = {Random(l).bits(l.out().with(DType::kU64)), b.iota(l.out().with(DType::kS64), 0)};
  auto sorted = b.sort(in, 0, true, [](Builder& c, std::span<const V> x) -> std::vector<V> {
    return {c.compare(x[0], x[1], Cmp::kLt)};
  });
  put(l, out, sorted[1]);
}

// --- dropout

void dropout_type(const Args& a, std::vector<Type>& out) {
  Type t = a.type("input");
  if (!ir::is_float(t.dtype()) && !ir::is_complex(t.dtype()))
    fail(Code::kRuntime, cannot_be_cast(a.default_float(), t.dtype()));
  out.push_back(t);
  out.push_back(t.with(DType::kPred));
}
void dropout_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("input");
  if (!l.b_or("train", true) || x.type.numel() == 0) {
    out.push_back(x);
    return out.push_back(b.ones(l.out(1)));
  }
  Type draw = draw_type(x.type.with(ir::real_dtype(x.dtype())));
  // As bernoulli(1 - p), to the bit: F.dropout keeps the same elements compiled and not.
  V p = l.number("p", ir::scalar_type(DType::kF64)), u = Random(l).uniform(draw);
  V left = b.broadcast_to(b.convert(b.sub(b.ones(p.type), p), draw.dtype()), draw.dims());
  V keep = b.compare(u, left, Cmp::kLt);
  V scale = b.select(b.compare(left, 0, Cmp::kEq), b.zeros(draw), b.div(b.ones(draw), left));
  V wide = b.convert(x, ir::compute_dtype(x.dtype()));
  V factor = b.mul(b.convert(keep, draw.dtype()), scale);
  put(l, out, b.mul(wide, b.convert(factor, wide.dtype())));
  out.push_back(keep);
}
// grad * mask * scale, and scale is a float: whole gradients come out as the default float.
void dropout_backward_type(const Args& a, std::vector<Type>& out) {
  Type grad = a.type("grad_output");
  out.push_back(grad.with(a.as_float(grad.dtype())));
}
void dropout_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  V grad = l.number("grad_output", t), mask = l.number("mask", t);
  put(l, out, b.mul(b.mul(grad, mask), l.number("scale", t)));
}

void rrelu_type(const Args& a, std::vector<Type>& out) {
  if (a.type("self").dtype() == DType::kF16 && a.b_or("training", false))
    fail(Code::kNotImplemented, "\"rrelu_with_noise_out_cpu\" not implemented for 'Half'");
  out.push_back(a.type("self"));
  out.push_back(a.type("noise"));
}
// Training draws a slope for each negative element, kept as noise; evaluation takes the mean.
void rrelu_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = b.convert(l.in("self"), ir::compute_dtype(l.out().dtype()));
  V low = number_or(l, "lower", x.type, 0.125), high = number_or(l, "upper", x.type, 1.0 / 3);
  V slope, noise = l.in("noise");
  if (l.b_or("training", false)) {
    V u = Random(l).uniform(draw_type(x.type));
    slope = b.add(b.mul(b.convert(u, x.dtype()), b.sub(high, low)), low);
    V one = b.ones(x.type);
    slope = b.select(b.compare(x, 0, Cmp::kLe), slope, one);
    noise = b.convert(slope, noise.dtype());
    put(l, out, b.mul(x, slope));
  } else {
    slope = b.mul(b.add(low, high), 0.5);
    put(l, out, b.select(b.compare(x, 0, Cmp::kLe), b.mul(x, slope), x));
  }
  out.push_back(noise);
}

// A distribution over self's shape; `numbers` are its parameters.
// --- ranges of the distributions' parameters, in eager's words
// ----------------------------------------------

void check_uniform(const Args& a) {
  auto from = a.number_value("from"), to = a.number_value("to");
  if (!from || !to) return;
  DType t = ir::real_dtype(a.type("self").dtype());
  double most = largest_finite(t);
  for (auto [name, v] : {std::pair{"from", *from}, {"to", *to}})
    if (!(v >= -most && v <= most))
      fail(Code::kRuntime, cat(name, " is out of bounds for ", eager_name(t).cpp));
  if (*from > *to)
    fail(Code::kRuntime, cat("uniform_ expects to return a [from, to) range, but found from=",
                             *from, " > to=", *to));
}

struct Range {
  const char* number;
  const char* rule;  // up to the value
  double low, high;
  bool above_low, below_high;  // that end is out
};
void check_inside(const Range& range, double v) {
  bool inside = (range.above_low ? v > range.low : v >= range.low) &&
                (range.below_high ? v < range.high : v <= range.high);
  if (!inside) fail(Code::kRuntime, cat(range.rule, v));
}
template <const Range& range>
void check_range(const Args& a) {
  if (auto v = a.number_value(range.number)) check_inside(range, *v);
}
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr Range kNormal{"std", "normal expects std >= 0.0, but found std ", 0, kInfinite, false,
                        false};
constexpr Range kLogNormal{
    "std", "log_normal_ expects std > 0.0, but found std=", 0, kInfinite, true, false};
constexpr Range kCauchy{
    "sigma", "cauchy_ expects sigma > 0.0, but found sigma=", 0, kInfinite, true, false};
constexpr Range kExponential{
    "lambd", "exponential_ expects lambda > 0.0, but found lambda=", 0, kInfinite, true, false};
constexpr Range kGeometric{"p", "geometric_ expects p to be in (0, 1), but got p=", 0, 1, true,
                           true};
constexpr Range kBernoulli{"p",  "bernoulli_ expects p to be in [0, 1], but got p=", 0, 1, false,
                           false};

// Eager draws what is kept.
void check_dropout(const Args& a) {
  auto p = a.number_value("p");
  if (p && a.b_or("train", true) && a.type("input").numel() > 0) check_inside(kBernoulli, 1 - *p);
}
// Eager's generator looks at the first element that is not above zero, this at every call.
void check_rrelu(const Args& a) {
  auto lower = a.number_value("lower"), upper = a.number_value("upper");
  if (a.b_or("training", false) && !(lower.value_or(0.125) <= upper.value_or(1.0 / 3)))
    fail(Code::kRuntime,
         "Expected from <= to to be true, but got false.  (Could this error message be improved?  "
         "If so, please report an enhancement request to PyTorch.)");
}

constexpr Row fills(Row r) {
  r.layout = Layout::kIterator;
  r.special = Special::kRandom;
  return r;
}
// eager's functional bernoulli makes a contiguous tensor.
constexpr Row draws(Row r) {
  r.special = Special::kRandom;
  return r;
}

}  // namespace

Family random() {
  static const Row kRows[] = {
      fills({.name = "aten::uniform",
             .type = uniform_type,
             .lower = uniform_lower,
             .numbers = "from to",
             .check = check_uniform}),
      fills({.name = "aten::normal_functional",
             .type = normal_type,
             .lower = normal_lower,
             .numbers = "mean std",
             .also = "aten::normal_",
             .check = check_range<kNormal>,
             .kernels = {{"normal_kernel_cpu", takes::kInexact | takes::kEmpty, "self"}}}),
      fills({.name = "aten::log_normal",
             .type = log_normal_type,
             .lower = log_normal_lower,
             .numbers = "mean std",
             .check = check_range<kLogNormal>}),
      fills({.name = "aten::cauchy",
             .type = cauchy_type,
             .lower = cauchy_lower,
             .numbers = "median sigma",
             .check = check_range<kCauchy>}),
      fills({.name = "aten::exponential",
             .type = exponential_type,
             .lower = exponential_lower,
             .numbers = "lambd",
             .check = check_range<kExponential>}),
      fills({.name = "aten::geometric",
             .type = type_same,
             .lower = geometric_lower,
             .numbers = "p",
             .check = check_range<kGeometric>,
             .kernels = {{"geometric_cpu", takes::kNumbers | takes::kEmpty, "self"}}}),
      draws({.name = "aten::bernoulli",
             .type = bernoulli_tensor_type,
             .lower = bernoulli_tensor_lower}),
      draws({.name = "aten::bernoulli.p",
             .type = type_same,
             .lower = bernoulli_p_lower,
             .numbers = "p",
             .also = "aten::bernoulli_.float",
             .check = check_range<kBernoulli>,
             .kernels = {{"bernoulli_scalar_cpu_", takes::kReals | takes::kEmpty, "self"}}}),
      draws({.name = "aten::bernoulli.Tensor",
             .type = bernoulli_tensor_type,
             .lower = bernoulli_tensor_lower}),
      fills({.name = "aten::random", .type = random_type, .lower = random_lower}),
      fills({.name = "aten::random.from",
             .type = random_range_type,
             .lower = random_range_lower,
             .general = "from to",
             .split = split_range}),
      fills({.name = "aten::random.to",
             .type = random_range_type,
             .lower = random_range_lower,
             .general = "to",
             .split = split_range}),
      fills({.name = "aten::native_dropout",
             .type = dropout_type,
             .lower = dropout_lower,
             .numbers = "p",
             .check = check_dropout}),
      fills({.name = "aten::rrelu_with_noise_functional",
             .type = rrelu_type,
             .lower = rrelu_lower,
             .check = check_rrelu,
             .kernels = {{"rrelu_with_noise_out_cpu", takes::kWide, "self"}}}),
      {.name = "aten::rrelu_with_noise",
       .type = rrelu_type,
       .lower = rrelu_lower,
       .special = Special::kRandom,
       .writes = "noise",
       .check = check_rrelu,
       .kernels = {{"leaky_relu_cpu", takes::kFloats, "self"}}},
      draws({.name = "aten::normal.Tensor_Tensor",
             .type = normal_tensors_type,
             .lower = normal_lower,
             .kernels = {{"normal_kernel_cpu", takes::kInexact, "mean"}}}),
      draws({.name = "aten::normal.Tensor_float",
             .type = normal_tensor_type<"mean">,
             .lower = normal_lower,
             .numbers = "std",
             .check = check_range<kNormal>,
             .kernels = {{"normal_kernel_cpu", takes::kInexact, "mean"}}}),
      draws({.name = "aten::normal.float_Tensor",
             .type = normal_tensor_type<"std">,
             .lower = normal_lower,
             .numbers = "mean",
             .kernels = {{"normal_kernel_cpu", takes::kInexact, "std"}}}),
      draws({.name = "aten::randperm", .type = randperm_type, .lower = randperm_lower}),
      draws({.name = "aten::randperm.generator", .type = randperm_type, .lower = randperm_lower}),
      draws({.name = "aten::multinomial",
             .type = multinomial_type,
             .lower = multinomial_lower,
             .out = {.check = out_wants<multinomial_words>}}),
      draws({.name = "aten::_standard_gamma",
             .type = standard_gamma_type,
             .lower = standard_gamma_lower}),
      draws({.name = "aten::_sample_dirichlet", .type = dirichlet_type, .lower = dirichlet_lower}),
      draws({.name = "aten::poisson", .type = poisson_type, .lower = poisson_lower}),
      draws({.name = "aten::binomial", .type = binomial_type, .lower = binomial_lower}),
      {.name = "aten::native_dropout_backward",
       .type = dropout_backward_type,
       .lower = dropout_backward_lower,
       .layout = Layout::kIterator,
       .numbers = "scale"},
  };
  return kRows;
}

}  // namespace tp::ops
