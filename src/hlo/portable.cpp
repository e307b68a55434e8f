// Which function stands for which `chlo` name; trigonometry, roots of it, and what is not a
// function of numbers (top_k, next_after). The special functions: portable_special.cpp.
#include "hlo/portable.h"

#include <array>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/text.h"

namespace tp::hlo {

thread_local constinit bool PortableText::on_ = false;

V odd(Builder& b, V of_magnitude, V x) { return b.mul(of_magnitude, b.unary("stablehlo.sign", x)); }

namespace {

bool is_double(V x) { return ir::real_dtype(x.dtype()) == DType::kF64; }

V log1p(Builder& b, V x) { return b.unary("stablehlo.log_plus_one", x); }
V atan2(Builder& b, V y, V x) { return b.binary("stablehlo.atan2", y, x); }

// e^a / 2, which overflows only where it is itself too large.
V half_exp(Builder& b, V a) {
  V root = b.exp(b.mul(a, 0.5));
  return b.mul(b.mul(root, 0.5), root);
}

V sinh(Builder& b, V x) {
  V a = b.abs(x), e = b.unary("stablehlo.exponential_minus_one", a);
  V near = b.mul(b.add(e, b.div(e, b.add(e, 1.0))), 0.5);
  V h = half_exp(b, a), far = b.sub(h, b.div(b.constant(0.25, x.type), h));
  return odd(b, b.select(b.compare(a, 1.0, Cmp::kLt), near, far), x);
}

V cosh(Builder& b, V x) {
  V h = half_exp(b, b.abs(x));
  return b.add(h, b.div(b.constant(0.25, x.type), h));
}

V tan(Builder& b, V x) {
  return b.div(b.unary("stablehlo.sine", x), b.unary("stablehlo.cosine", x));
}

// sqrt(1 - x^2), exact next to 1.
V other_leg(Builder& b, V x) {
  V one = b.ones(x.type);
  return b.sqrt(b.mul(b.sub(one, x), b.add(one, x)));
}

V asin(Builder& b, V x) { return atan2(b, x, other_leg(b, x)); }
V acos(Builder& b, V x) { return atan2(b, other_leg(b, x), x); }
V atan(Builder& b, V x) { return atan2(b, x, b.ones(x.type)); }

// Beyond it 1 is nothing to x^2.
double far_from_one(V x) { return is_double(x) ? 1e8 : 1e4; }

V acosh(Builder& b, V x) {
  V t = b.sub(x, 1.0), near = log1p(b, b.add(t, b.sqrt(b.mul(t, b.add(t, 2.0)))));
  V far = b.add(b.log(x), std::numbers::ln2);
  V r = b.select(b.compare(x, far_from_one(x), Cmp::kGt), far, near);
  V nan = b.constant(std::numeric_limits<double>::quiet_NaN(), x.type);
  return b.select(b.compare(x, 1.0, Cmp::kLt), nan, r);
}

V atanh(Builder& b, V x) { return b.mul(b.sub(log1p(b, x), log1p(b, b.neg(x))), 0.5); }

// --- complex ------------------------------------------------------------------------------------
// W. Kahan, Branch Cuts for Complex Elementary Functions (1987).

struct Parts {
  V re, im;
};

Parts parts(Builder& b, V z) {
  Type t = z.type.with(ir::real_dtype(z.dtype()));
  return {b.op("stablehlo.real", {z}, t), b.op("stablehlo.imag", {z}, t)};
}
V joined(Builder& b, V re, V im) {
  return b.op("stablehlo.complex", {re, im}, re.type.with(ir::complex_dtype(re.dtype())));
}
// The roots of z + sign and z - sign times sign: of 1 + z and 1 - z, or of z + 1 and z - 1.
std::pair<Parts, Parts> roots_beside_one(Builder& b, V z, bool one_first) {
  V one = b.ones(z.type);
  V less = one_first ? b.sub(one, z) : b.sub(z, one);
  return {parts(b, b.sqrt(b.add(z, one))), parts(b, b.sqrt(less))};
}

V complex_asin(Builder& b, V z) {
  auto [p, m] = roots_beside_one(b, z, true);
  V re = atan2(b, parts(b, z).re, b.sub(b.mul(m.re, p.re), b.mul(m.im, p.im)));
  return joined(b, re, portable_asinh(b, b.sub(b.mul(m.re, p.im), b.mul(m.im, p.re))));
}

V complex_acos(Builder& b, V z) {
  auto [p, m] = roots_beside_one(b, z, true);
  V re = b.mul(atan2(b, m.re, p.re), 2.0);
  return joined(b, re, portable_asinh(b, b.sub(b.mul(p.re, m.im), b.mul(p.im, m.re))));
}

V complex_acosh(Builder& b, V z) {
  auto [p, m] = roots_beside_one(b, z, false);
  V re = portable_asinh(b, b.add(b.mul(m.re, p.re), b.mul(m.im, p.im)));
  return joined(b, re, b.mul(atan2(b, m.im, p.re), 2.0));
}

V complex_asinh(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  Parts turned = parts(b, complex_asin(b, joined(b, b.neg(y), x)));
  return joined(b, turned.im, b.neg(turned.re));
}

V complex_atanh(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  V one = b.ones(x.type), from_one = b.sub(one, x), y2 = b.mul(y, y);
  V re = log1p(b, b.div(b.mul(x, 4.0), b.add(b.mul(from_one, from_one), y2)));
  V im = atan2(b, b.mul(y, 2.0), b.sub(b.mul(from_one, b.add(one, x)), y2));
  return joined(b, b.mul(re, 0.25), b.mul(im, 0.5));
}

V conj(Builder& b, V z) {
  if (!ir::is_complex(z.dtype())) return z;
  auto [re, im] = parts(b, z);
  return joined(b, re, b.neg(im));
}

// --- not by numbers -----------------------------------------------------------------------------

DType bits_of(DType t) {
  return ir::dtype_size(t) == 8 ? DType::kS64 : ir::dtype_size(t) == 4 ? DType::kS32 : DType::kS16;
}

// A float's bits, taken for an integer, count its magnitude.
V next_after(Builder& b, V x, V y) {
  Type whole = x.type.with(bits_of(x.dtype()));
  V bits = b.bitcast(x, whole), one = b.ones(whole), zero = b.zeros(x.type);
  V apart = b.xor_(b.compare(x, y, Cmp::kLt), b.compare(x, zero, Cmp::kGt));
  V moved = b.add(bits, b.select(apart, b.neg(one), one));
  V least = b.select(b.compare(y, zero, Cmp::kLt), b.add(b.min_value(whole), one), one);
  V next = b.bitcast(b.select(b.compare(x, zero, Cmp::kEq), least, moved), x.type);
  next = b.select(b.compare(x, y, Cmp::kEq), y, next);
  return b.select(b.or_(b.is_nan(x), b.is_nan(y)), b.add(x, y), next);
}

std::vector<V> top_k(Builder& b, V x, std::span<const Type> out) {
  int64_t last = x.rank() - 1, k = out[0].dim(static_cast<size_t>(last));
  std::array<V, 2> pair{x, b.iota(x.type.with(DType::kS32), last)};
  auto more = [](Builder& r, std::span<const V> v) -> std::vector<V> {
    bool real = ir::is_float(v[0].dtype());
    return {r.compare(v[0], v[1], Cmp::kGt, real ? Order::kTotal : Order::kPartial)};
  };
  std::vector<V> sorted = b.sort(pair, last, true, more);
  return {b.slice_dim(sorted[0], last, 0, k), b.slice_dim(sorted[1], last, 0, k)};
}

// --- by name ------------------------------------------------------------------------------------

using Unary = V (*)(Builder&, V);
struct Function {
  std::string_view name;
  Unary real = nullptr, complex = nullptr;
};
constexpr Function kFunctions[] = {
    {"chlo.acos", acos, complex_acos},
    {"chlo.acosh", acosh, complex_acosh},
    {"chlo.asin", asin, complex_asin},
    {"chlo.asinh", portable_asinh, complex_asinh},
    {"chlo.atan", atan},
    {"chlo.atanh", atanh, complex_atanh},
    {"chlo.conj", conj, conj},
    {"chlo.cosh", cosh},
    {"chlo.digamma", portable_digamma},
    {"chlo.erf", portable_erf},
    {"chlo.erf_inv", portable_erf_inv},
    {"chlo.erfc", portable_erfc},
    {"chlo.lgamma", portable_lgamma},
    {"chlo.sinh", sinh},
    {"chlo.tan", tan},
};

DType computed_in(DType t) { return ir::is_float(t) && ir::dtype_size(t) < 4 ? DType::kF32 : t; }

Unary function_of(std::string_view name, bool complex) {
  for (const Function& f : kFunctions)
    if (f.name == name) return complex ? f.complex : f.real;
  return nullptr;
}

}  // namespace

V portable_asinh(Builder& b, V x) {
  V a = b.abs(x), a2 = b.mul(a, a), one = b.ones(x.type);
  V near = log1p(b, b.add(a, b.div(a2, b.add(b.sqrt(b.add(a2, one)), one))));
  V far = b.add(b.log(a), std::numbers::ln2);
  return odd(b, b.select(b.compare(a, far_from_one(x), Cmp::kGt), far, near), x);
}

std::vector<V> in_stablehlo(Builder& b, std::string_view name, std::span<const V> in,
                            std::span<const Type> out) {
  if (name == "chlo.top_k") return top_k(b, in[0], out);
  if (name == "chlo.next_after") return {next_after(b, in[0], in[1])};
  DType wide = computed_in(in[0].dtype());
  V x = b.convert(in[0], wide);
  if (name == "chlo.zeta")
    return {b.convert(portable_zeta(b, x, b.convert(in[1], wide)), out[0].dtype())};
  Unary f = function_of(name, ir::is_complex(wide));
  if (!f) fail(Code::kNotImplemented, cat(name, " has no form without dialect chlo"));
  return {b.convert(f(b, x), out[0].dtype())};
}

}  // namespace tp::hlo
