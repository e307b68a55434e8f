#include "ops/elementwise/complex_functions.h"

#include <numbers>

namespace tp::ops {
namespace {

using hlo::Cmp;

struct Parts {
  V re, im;
};
Parts parts(Builder& b, V z) { return {real_part(b, z), imag_part(b, z)}; }

V sine(Builder& b, V x) { return b.unary("stablehlo.sine", x); }
V cosine(Builder& b, V x) { return b.unary("stablehlo.cosine", x); }
V sinh(Builder& b, V x) { return b.unary("chlo.sinh", x); }
V cosh(Builder& b, V x) { return b.unary("chlo.cosh", x); }

// x * y, where a zero wins over what is not finite.
V product(Builder& b, V x, V y) {
  V one = b.ones(x.type);
  V left = b.select(is_zero(b, y), copysign(b, one, x), x);
  V right = b.select(is_zero(b, left), copysign(b, one, y), y);
  return b.mul(left, right);
}

// i z and -i w: tan and atan are their hyperbolic twins a quarter turn away.
V turned(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  return make_complex(b, b.neg(y), x);
}
V turned_back(Builder& b, V w) {
  auto [u, v] = parts(b, w);
  return make_complex(b, v, b.neg(u));
}

// An odd function with real values on the real axis: each part has the sign of its operand's.
V odd(Builder& b, V w, V z) {
  auto [x, y] = parts(b, z);
  auto [u, v] = parts(b, w);
  return make_complex(b, copysign(b, u, x), copysign(b, v, y));
}

V with_side(Builder& b, V w, V side) {
  auto [u, v] = parts(b, w);
  return make_complex(b, u, copysign(b, v, side));
}

}  // namespace

// --- trigonometric and hyperbolic functions, by their addition theorems --------------------------

V complex_sin(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  return make_complex(b, product(b, sine(b, x), cosh(b, y)), product(b, cosine(b, x), sinh(b, y)));
}

V complex_cos(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  V im = b.neg(product(b, sine(b, x), sinh(b, y)));
  return make_complex(b, product(b, cosine(b, x), cosh(b, y)), im);
}

V complex_sinh(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  return make_complex(b, product(b, sinh(b, x), cosine(b, y)), product(b, cosh(b, x), sine(b, y)));
}

V complex_cosh(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  return make_complex(b, product(b, cosh(b, x), cosine(b, y)), product(b, sinh(b, x), sine(b, y)));
}

// W. Kahan, Branch Cuts for Complex Elementary Functions (1987), procedure CTANH.
V complex_tanh(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  double limit = x.dtype() == DType::kF64 ? 177 : 22;  // where sinh(x)^4 would overflow
  V far = b.compare(b.abs(x), limit, Cmp::kGt), near_x = b.select(far, b.zeros(x.type), x);
  V t = b.unary("chlo.tan", y), s = sinh(b, near_x), s2 = b.mul(s, s);
  V beta = b.add(b.mul(t, t), 1.0), under = b.add(b.mul(beta, s2), 1.0);
  V re = b.div(b.mul(b.mul(beta, b.sqrt(b.add(s2, 1.0))), s), under), im = b.div(t, under);
  V fade = b.mul(b.exp(b.mul(b.abs(x), -2.0)), 4.0);
  V far_im = b.mul(b.mul(sine(b, y), cosine(b, y)), fade);
  return make_complex(b, b.select(far, copysign(b, b.ones(x.type), x), re),
                      b.select(far, far_im, im));
}

V complex_tan(Builder& b, V z) { return turned_back(b, complex_tanh(b, turned(b, z))); }

// --- their inverses ------------------------------------------------------------------------------

V complex_asin(Builder& b, V z) { return odd(b, b.unary("chlo.asin", z), z); }
V complex_asinh(Builder& b, V z) { return odd(b, b.unary("chlo.asinh", z), z); }

V complex_acos(Builder& b, V z) {
  return with_side(b, b.unary("chlo.acos", z), b.neg(imag_part(b, z)));
}
V complex_acosh(Builder& b, V z) { return with_side(b, b.unary("chlo.acosh", z), imag_part(b, z)); }

// Next to its poles, 1 and -1, where the distance's square would vanish, by the distance itself.
V complex_atanh(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  auto [u, v] = parts(b, b.unary("chlo.atanh", z));
  V distance = b.abs(y);
  V close = b.and_(b.compare(b.abs(x), 1, Cmp::kEq), b.compare(distance, 1e-12, Cmp::kLt));
  V pole = b.mul(b.sub(b.constant(std::numbers::ln2, x.type), b.log(distance)), 0.5);
  return odd(b, make_complex(b, b.select(close, pole, u), v), z);
}

V complex_atan(Builder& b, V z) { return turned_back(b, complex_atanh(b, turned(b, z))); }

// --- roots, logarithms, quotients ----------------------------------------------------------------

V complex_sqrt(Builder& b, V z) { return with_side(b, b.sqrt(z), imag_part(b, z)); }
V complex_rsqrt(Builder& b, V z) { return complex_divide(b, b.ones(z.type), complex_sqrt(b, z)); }

V complex_expm1(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  V a = sine(b, b.mul(y, 0.5)), rise = b.unary("stablehlo.exponential_minus_one", x);
  V re = b.sub(b.mul(rise, cosine(b, y)), b.mul(b.mul(a, a), 2.0));
  return make_complex(b, re, b.mul(b.exp(x), sine(b, y)));
}

// Above and below -1 by the distance itself, whose square can vanish.
V complex_log1p(Builder& b, V z) {
  auto [x, y] = parts(b, z);
  auto [u, v] = parts(b, b.unary("stablehlo.log_plus_one", z));
  return make_complex(b, b.select(b.compare(x, -1, Cmp::kEq), b.log(b.abs(y)), u), v);
}

// A zero divides as +0, of which sign it may be.
V complex_divide(Builder& b, V x, V y) {
  V zero = b.zeros(y.type);
  return b.div(x, b.select(b.compare(y, zero, Cmp::kEq), zero, y));
}

V complex_scale(Builder& b, V z, double factor) {
  auto [x, y] = parts(b, z);
  return make_complex(b, b.mul(x, factor), b.mul(y, factor));
}

}  // namespace tp::ops
