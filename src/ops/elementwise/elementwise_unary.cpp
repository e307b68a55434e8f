// One operand, one formula. Integer operands of float ops arrive converted: the result type says
// so.
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"
#include "ops/core/numbers.h"
#include "ops/elementwise/complex_functions.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
constexpr double kPi = std::numbers::pi;
constexpr double kInf = std::numeric_limits<double>::infinity();

V reciprocal(Builder& b, V x) { return divide(b, b.ones(x.type), x); }
V negate(Builder& b, V x) { return b.neg(x); }
V absolute(Builder& b, V x) { return x.dtype() == DType::kPred ? x : b.abs(x); }
V bitwise_not(Builder& b, V x) { return b.not_(x); }
V logical_not(Builder& b, V x) { return b.not_(b.convert(x, DType::kPred)); }

// Rounding of integers is a copy.
template <Text name>
V rounding(Builder& b, V x) {
  return ir::is_float(x.dtype()) ? b.unary(name.text, x) : x;
}

// (x > 0) - (x < 0): 0 for NaN, as eager.
V sign(Builder& b, V x) {
  if (x.dtype() == DType::kPred) return x;
  V above = b.convert(b.compare(x, 0, Cmp::kGt), x.dtype());
  if (ir::is_unsigned(x.dtype())) return above;
  return b.sub(above, b.convert(b.compare(x, 0, Cmp::kLt), x.dtype()));
}

V sgn(Builder& b, V x) {
  if (!ir::is_complex(x.dtype())) return sign(b, x);
  V size = b.abs(x);
  V zero = b.compare(size, 0, Cmp::kEq);
  return b.select(zero, b.zeros(x.type), b.div(x, b.convert(size, x.dtype())));
}

template <auto formula>
V each_part(Builder& b, V x) {
  if (!ir::is_complex(x.dtype())) return formula(b, x);
  return b.or_(formula(b, real_part(b, x)), formula(b, imag_part(b, x)));
}
V nan_of(Builder& b, V x) {
  return ir::is_float(x.dtype()) ? b.is_nan(x) : b.zeros(x.type.with(DType::kPred));
}
V equals(Builder& b, V x, double v) {
  return ir::is_float(x.dtype()) ? b.compare(x, v, Cmp::kEq) : b.zeros(x.type.with(DType::kPred));
}
V posinf_of(Builder& b, V x) { return equals(b, x, kInf); }
V neginf_of(Builder& b, V x) { return equals(b, x, -kInf); }
V inf_of(Builder& b, V x) {
  return ir::is_float(x.dtype()) ? equals(b, b.abs(x), kInf) : posinf_of(b, x);
}

V frac(Builder& b, V x) { return b.sub(x, trunc(b, x)); }

template <int base>
V log_base(Builder& b, V x) {
  if (ir::is_complex(x.dtype())) return complex_scale(b, b.log(x), 1 / std::log(double{base}));
  return b.div(b.log(x), b.constant(std::log(double{base}), x.type));
}

V exp2(Builder& b, V x) {
  if (ir::is_complex(x.dtype())) return b.exp(complex_scale(b, x, std::numbers::ln2));
  return b.binary("stablehlo.power", b.constant(2.0, x.type), x);
}

V sinc(Builder& b, V x) {
  V y = b.mul(x, kPi);
  V zero = b.compare(x, b.zeros(x.type), Cmp::kEq);
  V sine = either<call<"stablehlo.sine">, complex_sin>(b, y);
  return b.select(zero, b.ones(x.type), b.div(sine, y));
}

V mish(Builder& b, V x) { return b.mul(x, b.tanh(softplus(b, x))); }

V entropy(Builder& b, V x) {
  V inside = b.select(is_zero(b, x), b.zeros(x.type), b.neg(b.mul(x, b.log(x))));
  return b.select(b.compare(x, 0, Cmp::kLt), b.constant(-kInf, x.type), inside);
}

// digamma has a pole at 0 whose sign is the zero's: -inf above, +inf below.
V digamma(Builder& b, V x) {
  V pole = b.select(sign_bit(b, x), b.constant(kInf, x.type), b.constant(-kInf, x.type));
  return b.select(is_zero(b, x), pole, b.unary("chlo.digamma", x));
}

V conj(Builder& b, V x) {
  return ir::is_complex(x.dtype()) ? make_complex(b, real_part(b, x), b.neg(imag_part(b, x))) : x;
}

V angle(Builder& b, V x) {
  if (ir::is_complex(x.dtype()))
    return b.binary("stablehlo.atan2", imag_part(b, x), real_part(b, x));
  V below = b.compare(x, 0, Cmp::kLt);
  V a = b.select(below, b.constant(kPi, x.type), b.zeros(x.type));
  return b.select(b.is_nan(x), x, a);
}

void lower_angle(Lowering& l, std::vector<V>& out) {
  V x = l.in("self");
  if (!ir::is_complex(x.dtype())) x = l.number("self", compute_type(l));
  put(l, out, angle(l.builder(), x));
}

// Results with no dtype of their own to compute in: the operand stays as it is.
template <auto formula>
void predicate(Lowering& l, std::vector<V>& out) {
  out.push_back(formula(l.builder(), l.in("self")));
}

// The sign of the decimals says whether to multiply or to divide.
void split_decimals(const Args& a, std::vector<uint64_t>& structure, std::vector<Number>& values) {
  structure.push_back(a.i("decimals") < 0);
  values.push_back({false, a.i("decimals")});
}
// 10^|n| as eager's pow has it, which is exact.
V power_of_ten(Lowering& l, Type t) {
  Builder& b = l.builder();
  V n = l.input("decimals");
  if (!n) return b.constant(std::pow(10.0, static_cast<double>(std::abs(l.i("decimals")))), t);
  constexpr int kPowers = 310;  // the last one is infinite
  std::vector<V> powers;
  for (int i = 0; i < kPowers; ++i)
    powers.push_back(b.constant(std::pow(10.0, i), ir::make_type(DType::kF64, IntList{1})));
  V starts[] = {b.min(b.max(n, b.neg(n)), kPowers - 1)};
  V one = b.dynamic_slice(b.concat(powers, 0), starts, IntList{1});
  return b.broadcast_to(b.convert(b.reshape(one, {}), t.dtype()), t.dims());
}
void round_decimals(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.number("self", compute_type(l));
  int64_t n = l.i("decimals");
  V scale = power_of_ten(l, x.type);
  V wide = n >= 0 ? b.mul(x, scale) : b.div(x, scale);
  V whole = rounding<"stablehlo.round_nearest_even">(b, wide);
  put(l, out, n >= 0 ? b.div(whole, scale) : b.mul(whole, scale));
}

V replace_special(Lowering& l, V x, double top) {
  Builder& b = l.builder();
  V y = b.select(b.is_nan(x), number_or(l, "nan", x.type, 0), x);
  y = b.select(posinf_of(b, x), number_or(l, "posinf", x.type, top), y);
  return b.select(neginf_of(b, x), number_or(l, "neginf", x.type, -top), y);
}

void nan_to_num(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  if (!ir::is_float(x.dtype()) && !ir::is_complex(x.dtype())) return out.push_back(x);
  double top = largest_finite(ir::real_dtype(x.dtype()));
  if (ir::is_float(x.dtype())) return out.push_back(replace_special(l, x, top));
  V re = replace_special(l, real_part(b, x), top);
  out.push_back(make_complex(b, re, replace_special(l, imag_part(b, x), top)));
}

// No eps, or one below 0: nothing is clamped.
void logit(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.number("self", compute_type(l));
  if (l.f_or("eps", -1) >= 0) {
    V eps = l.number("eps", ir::scalar_type(DType::kF64)), rest = b.sub(b.ones(eps.type), eps);
    auto bound = [&](V v) { return b.broadcast_to(b.convert(v, x.dtype()), x.dims()); };
    // In eager's order, which tells where the bounds cross.
    V low = bound(eps), high = bound(rest), below = b.compare(x, low, Cmp::kLt);
    x = b.select(below, low, b.select(b.compare(x, high, Cmp::kGt), high, x));
  }
  put(l, out, b.log(b.div(x, b.sub(b.ones(x.type), x))));
}

V atan(Builder& b, V x) { return b.atan(x); }

// psi'(x) as eager: below 1/2 by reflection, six steps up, and there the asymptotic series. Its
// value at a pole is what sin(pi x) leaves there.
V trigamma(Builder& b, V x) {
  V low = b.compare(x, 0.5, Cmp::kLt), one = b.ones(x.type);
  V s = b.unary("stablehlo.sine", b.mul(x, kPi)), up = b.select(low, b.sub(one, x), x);
  V sum = b.zeros(x.type);
  for (int i = 0; i < 6; ++i, up = b.add(up, 1.0)) sum = b.add(sum, b.div(one, b.mul(up, up)));
  V inverse = b.div(one, b.mul(up, up)), tail = b.constant(1.0 / 42, x.type);
  tail = b.sub(b.constant(1.0 / 30, x.type), b.mul(inverse, tail));
  tail = b.sub(b.constant(1.0 / 6, x.type), b.mul(inverse, tail));
  tail = b.add(b.add(b.div(one, b.mul(up, 2.0)), 1.0), b.mul(inverse, tail));
  sum = b.add(sum, b.div(tail, up));
  return b.select(low, b.sub(b.div(b.constant(kPi * kPi, x.type), b.mul(s, s)), sum), sum);
}

// Of an order that is an input: all formulas.
V polygamma_of(Builder& b, V x, V order) {
  V n = b.convert(order, DType::kF64), next = b.add(n, 1.0);
  V odd = b.compare(b.binary("stablehlo.remainder", n, b.constant(2, n.type)), 1.0, Cmp::kEq);
  V size = b.exp(b.unary("chlo.lgamma", next)), factor = b.select(odd, size, b.neg(size));
  auto like = [&](V v) { return b.broadcast_to(b.convert(v, x.dtype()), x.dims()); };
  auto is = [&](double v) { return b.broadcast_to(b.compare(n, v, Cmp::kEq), x.dims()); };
  V y = b.mul(hurwitz_zeta(b, like(next), x), like(factor));
  return b.select(is(0), digamma(b, x), b.select(is(1), trigamma(b, x), y));
}

void polygamma(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.number("self", compute_type(l));
  if (V order = l.input("n")) return put(l, out, polygamma_of(b, x, order));
  int64_t n = l.i("n");
  if (n == 0) return put(l, out, digamma(b, x));
  if (n == 1) return put(l, out, trigamma(b, x));
  double factor = std::tgamma(static_cast<double>(n) + 1) * (n % 2 ? 1 : -1);
  put(l, out, b.mul(hurwitz_zeta(b, b.constant_int(n + 1, x.type), x), factor));
}

void frexp(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.number("self", compute_type(l));
  bool wide = x.dtype() == DType::kF64;
  int mantissa = wide ? 52 : 23, bias = wide ? 1022 : 126;
  Type it = x.type.with(wide ? DType::kS64 : DType::kS32);
  V bits = b.bitcast(x, it);
  V shift = b.constant_int(mantissa, it);
  V mask = b.constant_int(wide ? 0x7ff : 0xff, it);
  V field = b.and_(b.binary("stablehlo.shift_right_logical", bits, shift), mask);
  V whole = b.binary("stablehlo.shift_left", mask, shift);
  V half = b.binary("stablehlo.shift_left", b.constant_int(bias, it), shift);
  V m = b.bitcast(b.or_(b.and_(bits, b.not_(whole)), half), x.type);
  V special = b.or_(b.compare(field, mask, Cmp::kEq), is_zero(b, x));
  put(l, out, b.select(special, x, m));
  put(l, out, b.select(special, b.zeros(it), b.sub(field, b.constant_int(bias, it))));
}

// --- types ---------------------------------------------------------------------------------------

void type_magnitude(const Args& a, std::vector<Type>& out) {
  Type t = a.type("self");
  out.push_back(t.with(ir::real_dtype(t.dtype())));
}

void type_angle(const Args& a, std::vector<Type>& out) {
  Type t = a.type("self");
  out.push_back(t.with(a.as_float(ir::real_dtype(t.dtype()))));
}

void type_float(const Args& a, std::vector<Type>& out) {
  Type t = a.type("self");
  out.push_back(t.with(a.as_float(t.dtype())));
}

void type_frexp(const Args& a, std::vector<Type>& out) {
  Type t = a.type("self");
  if (!ir::is_float(t.dtype()))
    fail(Code::kRuntime, "torch.frexp() only supports floating-point dtypes");
  out.push_back(t);
  out.push_back(t.with(DType::kS32));
}

// --- what out= and in-place forms may be

std::string boolean_words(DType, DType) { return "does not support non-boolean outputs."; }
std::string nan_words(DType want, DType have) {
  return cat("nan_to_num: dtype of out: ", eager_name(have).scalar,
             " should be same as input: ", eager_name(want).scalar);
}
// abs of complex numbers has a kernel of its own, which casts, and no in-place form.
void abs_out(DType want, DType have) {
  if (!ir::is_complex(have)) out_wants<found_words>(want, have);
}
void no_complex_inplace(DType self) {
  if (ir::is_complex(self))
    fail(Code::kRuntime, "In-place abs is not supported for complex tensors.");
}

const Row kRows[] = {
    {.name = "aten::abs",
     .type = type_magnitude,
     .lower = predicate<absolute>,
     .layout = Layout::kIterator,
     .kernels = {{"abs_cpu", takes::kNoBools}},
     .out = {.check = abs_out},
     .check_inplace = no_complex_inplace,
     .recomputed = true},
    {"aten::reciprocal", nullptr, unary<reciprocal>},
    {.name = "aten::neg",
     .lower = unary<negate>,
     .out = {.check = out_wants<found_words>},
     .recomputed = true},
    {.name = "aten::bitwise_not",
     .lower = unary<bitwise_not>,
     .kernels = {{"bitwise_not_cpu", takes::kBits}},
     .out = {.check = out_wants<found_words>}},
    {"aten::logical_not", type_pred, predicate<logical_not>, Layout::kIterator},
    {.name = "aten::sign",
     .lower = unary<sign>,
     .out = {.check = out_wants<found_words>},
     .recomputed = true},
    {.name = "aten::sgn", .lower = unary<sgn>, .out = {.check = out_wants<found_words>}},
    {.name = "aten::signbit",
     .lower = predicate<sign_bit>,
     .out = {.check = out_wants<boolean_words>}},
    {"aten::isnan", type_pred, predicate<each_part<nan_of>>, Layout::kIterator},
    {.name = "aten::isposinf",
     .lower = predicate<posinf_of>,
     .out = {.check = out_wants<boolean_words>}},
    {.name = "aten::isneginf",
     .lower = predicate<neginf_of>,
     .out = {.check = out_wants<boolean_words>}},
    {"aten::isinf", type_pred, predicate<each_part<inf_of>>, Layout::kIterator},
    {.name = "aten::_conj_physical",
     .type = type_same,
     .lower = predicate<conj>,
     .layout = Layout::kIterator,
     .also = "aten::conj_physical.out"},
    {"aten::angle", type_angle, lower_angle, Layout::kIterator},
    {.name = "aten::nan_to_num",
     .type = type_same,
     .lower = nan_to_num,
     .layout = Layout::kCopyOfFirst,
     .general = "nan posinf neginf",
     .iterates = Iterates::kYes,
     .out = {.check = out_wants<nan_words>}},
    {.name = "aten::frexp.Tensor",
     .type = type_frexp,
     .lower = frexp,
     .layout = Layout::kCopyOfFirst,
     .iterates = Iterates::kYes},

    {.name = "aten::floor",
     .lower = unary<rounding<"stablehlo.floor">>,
     .kernels = {{"floor_vml_cpu", takes::kNoBools}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::ceil",
     .lower = unary<rounding<"stablehlo.ceil">>,
     .kernels = {{"ceil_vml_cpu", takes::kNoBools}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::round",
     .lower = unary<rounding<"stablehlo.round_nearest_even">>,
     .kernels = {{"round_vml_cpu", takes::kNumbers}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::round.decimals",
     .lower = round_decimals,
     .general = "decimals",
     .split = split_decimals,
     .kernels = {{"round_cpu", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::trunc",
     .lower = unary<trunc>,
     .kernels = {{"trunc_vml_cpu", takes::kNoBools}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::frac",
     .lower = unary<frac>,
     .kernels = {{"frac_cpu", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},

    {"aten::sqrt", nullptr, unary<square_root>},
    {"aten::rsqrt", nullptr, unary<reciprocal_root>},
    {"aten::exp", nullptr, unary<call<"stablehlo.exponential">>},
    {"aten::exp2", nullptr, unary<exp2>},
    {"aten::expm1", nullptr, unary<either<call<"stablehlo.exponential_minus_one">, complex_expm1>>},
    {"aten::log", nullptr, unary<call<"stablehlo.log">>},
    {"aten::log1p", nullptr, unary<either<call<"stablehlo.log_plus_one">, complex_log1p>>},
    {"aten::log2", nullptr, unary<log_base<2>>},
    {"aten::log10", nullptr, unary<log_base<10>>},
    {.name = "aten::logit",
     .type = type_float,
     .lower = logit,
     .layout = Layout::kIterator,
     .general = "eps",
     .split = split_eps,
     .kernels = {{"logit_cpu", takes::kReals}}},
    {"aten::sigmoid", nullptr, unary<call<"stablehlo.logistic">>},

    {"aten::sin", nullptr, unary<either<call<"stablehlo.sine">, complex_sin>>},
    {"aten::cos", nullptr, unary<either<call<"stablehlo.cosine">, complex_cos>>},
    {"aten::tan", nullptr, unary<either<call<"chlo.tan">, complex_tan>>},
    {"aten::asin", nullptr, unary<either<call<"chlo.asin">, complex_asin>>},
    {"aten::acos", nullptr, unary<either<call<"chlo.acos">, complex_acos>>},
    {"aten::atan", nullptr, unary<either<atan, complex_atan>>},
    {"aten::sinh", nullptr, unary<either<call<"chlo.sinh">, complex_sinh>>},
    {"aten::cosh", nullptr, unary<either<call<"chlo.cosh">, complex_cosh>>},
    {"aten::tanh", nullptr, unary<either<call<"stablehlo.tanh">, complex_tanh>>},
    {"aten::asinh", nullptr, unary<either<call<"chlo.asinh">, complex_asinh>>},
    {"aten::acosh", nullptr, unary<either<call<"chlo.acosh">, complex_acosh>>},
    {"aten::atanh", nullptr, unary<either<call<"chlo.atanh">, complex_atanh>>},
    {"aten::sinc", nullptr, unary<sinc>},

    {.name = "aten::erf",
     .lower = unary<call<"chlo.erf">>,
     .kernels = {{"erf_vml_cpu", takes::kReals}}},
    {.name = "aten::erfc",
     .lower = unary<call<"chlo.erfc">>,
     .kernels = {{"erfc_vml_cpu", takes::kReals}}},
    {.name = "aten::erfinv",
     .lower = unary<call<"chlo.erf_inv">>,
     .kernels = {{"erfinv_vml_cpu", takes::kReals}}},
    {.name = "aten::lgamma",
     .lower = unary<call<"chlo.lgamma">>,
     .kernels = {{"lgamma_vml_cpu", takes::kReals}}},
    {.name = "aten::digamma", .lower = unary<digamma>, .kernels = {{"digamma", takes::kReals}}},
    {.name = "aten::polygamma",
     .lower = polygamma,
     .general = "n",
     .kernels = {{"trigamma", takes::kReals}}},
    {.name = "aten::mish",
     .lower = unary<mish>,
     .kernels = {{"mish_cpu", takes::kFloats}},
     .out = {.check = out_wants<found_words>}},
    {.name = "aten::special_entr",
     .lower = unary<entropy>,
     .kernels = {{"entr_cpu", takes::kReals}}},
};

}  // namespace

Family elementwise_unary() { return kRows; }

}  // namespace tp::ops
