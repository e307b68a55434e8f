// Random ops. Each has two extra operands, seed and offset: run-time numbers, so that the program
// stays the same from step to step. Half types compute in float32. Any thread.
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/index/indexing.h"
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
  if (ir::is_float(t) || t == DType::kS64 || t == DType::kU64) return;
  auto high = static_cast<int64_t>(largest_integer(t));
  int64_t low = ir::is_unsigned(t) ? 0 : -high - 1;
  if (from < low || from > high)
    fail(Code::kRuntime, cat("from is out of bounds for ", eager_name(t).cpp));
  if (bounded && (to - 1 < low || to - 1 > high))
    fail(Code::kRuntime, cat("to - 1 is out of bounds for ", eager_name(t).cpp));
}
void random_range_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  int64_t from = l.i_or("from", 0);
  uint64_t end =
      l.has("to") ? static_cast<uint64_t>(l.i("to")) : largest_integer(l.out().dtype()) + 1;
  if (!l.has("to") && l.out().dtype() == DType::kS64) end = uint64_t{1} << 63;
  V v = Random(l).below(l.out().dims(), end - static_cast<uint64_t>(from));
  put(l, out, from == 0 ? v : b.add(v, b.constant_int(from, v.type)));
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

void multinomial_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  int64_t n = a.i("num_samples");
  if (self.rank() < 1 || self.rank() > 2) fail(Code::kRuntime, "prob_dist must be 1 or 2 dim");
  if (!ir::is_float(self.dtype()))
    fail(Code::kRuntime, cat("multinomial only supports floating-point dtypes for input, got: ",
                             eager_name(self.dtype()).scalar));
  if (n <= 0) fail(Code::kRuntime, "cannot sample n_sample <= 0 samples");
  if (!a.b_or("replacement", false) && n > self.dims().back())
    fail(Code::kRuntime, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  IntList dims = dims_of(self);
  dims.back() = n;
  out.push_back(ir::make_type(DType::kS64, dims));
}
// With replacement: where a uniform number falls among the running sums.
V draw_with_replacement(Builder& b, Random& random, V p, int64_t n) {
  int64_t categories = p.dim(1);
  V sums = running_sum(b, p, 1);
  V total = b.slice_dim(sums, 1, categories - 1, categories);
  IntList dims{p.dim(0), n, categories};
  V u = random.uniform(p.type.with(IntList{p.dim(0), n}));
  u = b.mul(u, b.broadcast_to(total, u.dims()));
  V wide_u = b.broadcast(u, p.type.with(dims), IntList{0, 1});
  V wide_sums = b.broadcast(sums, p.type.with(dims), IntList{0, 2});
  V passed = b.convert(b.compare(wide_sums, wide_u, Cmp::kLe), DType::kS64);
  V place = b.reduce(passed, IntList{2}, Red::kSum);
  return b.min(place, b.constant_int(categories - 1, place.type));
}
// Without: the largest of p / exponential, which is how eager draws too.
void multinomial_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V p = l.in("self");
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  p = b.convert(p, ir::compute_dtype(p.dtype()));
  if (p.rank() == 1) p = b.reshape(p, IntList{1, p.dim(0)});
  Random random(l);
  int64_t n = l.i("num_samples");
  V places;
  if (l.b_or("replacement", false) && n > 1) {
    places = draw_with_replacement(b, random, p, n);
  } else {
    V race = b.div(p, b.neg(b.log(random.open_uniform(p.type))));
    places = b.slice_dim(sort_along(b, race, 1, true).indices, 1, 0, n);
  }
  out.push_back(b.reshape(places, l.out().dims()));
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
  if (from && to && *from > *to)
    fail(Code::kRuntime, cat("uniform_ expects to return a [from, to) range, but found from=",
                             *from, " > to=", *to));
}

struct Range {
  const char* number;
  const char* rule;  // up to the value
  double low, high;
  bool open;  // the ends are out
};
template <const Range& range>
void check_range(const Args& a) {
  auto v = a.number_value(range.number);
  if (!v) return;
  bool inside =
      range.open ? *v > range.low && *v < range.high : *v >= range.low && *v <= range.high;
  if (!inside) fail(Code::kRuntime, cat(range.rule, *v));
}
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr Range kNormal{"std", "normal expects std >= 0.0, but found std ", 0, kInfinite, false};
constexpr Range kLogNormal{"std", "log_normal_ expects std > 0.0, but found std=", 0, kInfinite,
                           true};
constexpr Range kCauchy{"sigma", "cauchy_ expects sigma > 0.0, but found sigma=", 0, kInfinite,
                        true};
constexpr Range kExponential{"lambd", "exponential_ expects lambda > 0.0, but found lambda=", 0,
                             kInfinite, true};
constexpr Range kGeometric{"p", "geometric_ expects p to be in (0, 1), but got p=", 0, 1, true};
constexpr Range kBernoulli{"p", "bernoulli_ expects p to be in [0, 1], but got p=", 0, 1, false};

constexpr Row fills(const char* name, TypeRule type, LowerRule lower, const char* numbers = "",
                    const char* also = "", CheckRule check = nullptr) {
  return {.name = name,
          .type = type,
          .lower = lower,
          .layout = Layout::kIterator,
          .special = Special::kRandom,
          .numbers = numbers,
          .also = also,
          .check = check};
}
// eager's functional bernoulli makes a contiguous tensor.
constexpr Row contiguous(Row r) {
  r.layout = Layout::kContiguous;
  return r;
}
constexpr Row draws(const char* name, TypeRule type, LowerRule lower, const char* numbers = "") {
  return {
      .name = name, .type = type, .lower = lower, .special = Special::kRandom, .numbers = numbers};
}

}  // namespace

Family random() {
  static const Row kRows[] = {
      fills("aten::uniform", uniform_type, uniform_lower, "from to", "", check_uniform),
      fills("aten::normal_functional", normal_type, normal_lower, "mean std", "aten::normal_",
            check_range<kNormal>),
      fills("aten::log_normal", log_normal_type, log_normal_lower, "mean std", "",
            check_range<kLogNormal>),
      fills("aten::cauchy", cauchy_type, cauchy_lower, "median sigma", "", check_range<kCauchy>),
      fills("aten::exponential", exponential_type, exponential_lower, "lambd", "",
            check_range<kExponential>),
      fills("aten::geometric", type_same, geometric_lower, "p", "", check_range<kGeometric>),
      draws("aten::bernoulli", bernoulli_tensor_type, bernoulli_tensor_lower),
      contiguous(fills("aten::bernoulli.p", type_same, bernoulli_p_lower, "p",
                       "aten::bernoulli_.float", check_range<kBernoulli>)),
      draws("aten::bernoulli.Tensor", bernoulli_tensor_type, bernoulli_tensor_lower),
      fills("aten::random", random_type, random_lower),
      fills("aten::random.from", random_range_type, random_range_lower),
      fills("aten::random.to", random_range_type, random_range_lower),
      fills("aten::native_dropout", dropout_type, dropout_lower, "p"),
      fills("aten::rrelu_with_noise_functional", rrelu_type, rrelu_lower),
      {.name = "aten::rrelu_with_noise",
       .type = rrelu_type,
       .lower = rrelu_lower,
       .special = Special::kRandom,
       .writes = "noise"},
      draws("aten::normal.Tensor_Tensor", normal_tensors_type, normal_lower),
      draws("aten::normal.Tensor_float", normal_tensor_type<"mean">, normal_lower, "std"),
      draws("aten::normal.float_Tensor", normal_tensor_type<"std">, normal_lower, "mean"),
      draws("aten::randperm", randperm_type, randperm_lower),
      draws("aten::randperm.generator", randperm_type, randperm_lower),
      draws("aten::multinomial", multinomial_type, multinomial_lower),
      draws("aten::_standard_gamma", standard_gamma_type, standard_gamma_lower),
      draws("aten::_sample_dirichlet", dirichlet_type, dirichlet_lower),
      draws("aten::poisson", poisson_type, poisson_lower),
      draws("aten::binomial", binomial_type, binomial_lower),
      {.name = "aten::native_dropout_backward",
       .type = dropout_backward_type,
       .lower = dropout_backward_lower,
       .layout = Layout::kIterator,
       .numbers = "scale"},
  };
  return kRows;
}

}  // namespace tp::ops
