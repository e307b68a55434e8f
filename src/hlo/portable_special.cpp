// Error functions, gamma functions and Hurwitz's zeta in plain StableHLO, of float32 or float64.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <utility>

#include "hlo/portable.h"

namespace tp::hlo {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kTwoOverRootPi = 2 * std::numbers::inv_sqrtpi;

bool is_double(V x) { return x.dtype() == DType::kF64; }

// c[0] + x (c[1] + x (c[2] + ...)).
V polynomial(Builder& b, V x, std::span<const double> c) {
  V sum = b.constant(c.back(), x.type);
  for (size_t i = c.size() - 1; i-- > 0;) sum = b.add(b.mul(sum, x), c[i]);
  return sum;
}

// --- erf ----------------------------------------------------------------------------------------

// |x| < 1, by its series.
V erf_near(Builder& b, V x) {
  std::vector<double> c;
  double factorial = 1;
  for (int n = 0; n < (is_double(x) ? 20 : 12); ++n) {
    if (n) factorial *= -n;
    c.push_back(kTwoOverRootPi / (factorial * (2 * n + 1)));
  }
  return b.mul(x, polynomial(b, b.mul(x, x), c));
}

// Chebyshev coefficients of exp(x^2) erfc(x), x >= 0, over 2t - 1 where t = 4 / (4 + x).
constexpr std::array<double, 25> kScaled{
    0.59620358738731521,     0.42908644125580537,     0.18027256568771056,
    0.065237524497348991,    0.020367256576744865,    0.0054490870664590076,
    0.0012278515372606755,   0.00022469794218773049,  3.0685431130989515e-5,
    2.3178234999468534e-6,   -1.4628356484727578e-7,  -6.9278305187489493e-8,
    -6.8831107633628464e-9,  6.8584891494454503e-10,  2.4593734989496684e-10,
    7.814909174028096e-12,   -5.8893947338172627e-12, -6.8692304385679934e-13,
    1.2550492580108261e-13,  2.8232509502798151e-14,  -2.6031646343175432e-15,
    -1.0249960195009235e-15, 5.7284146812568497e-17,  3.692875129327215e-17,
    -1.5725507296420276e-18};

V scaled_erfc(Builder& b, V a) {
  V y = b.sub(b.div(b.constant(8, a.type), b.add(a, 4.0)), 1.0), twice = b.mul(y, 2.0);
  V next = b.zeros(a.type), after = next;
  for (size_t i = is_double(a) ? kScaled.size() : 13; --i > 0;)
    after = std::exchange(next, b.add(b.sub(b.mul(twice, next), after), kScaled[i]));
  return b.add(b.sub(b.mul(y, next), after), kScaled[0] / 2);
}

// a >= 0. The square's rounding would show in the result: a's upper half has an exact one.
V erfc_far(Builder& b, V a) {
  a = b.min(a, 30.0);
  V high = b.op("stablehlo.reduce_precision", {a}, a.type,
                is_double(a) ? "exponent_bits = 11 : i32, mantissa_bits = 25 : i32"
                             : "exponent_bits = 8 : i32, mantissa_bits = 11 : i32");
  V rest = b.exp(b.neg(b.mul(b.sub(a, high), b.add(a, high))));
  return b.mul(b.mul(scaled_erfc(b, a), b.exp(b.neg(b.mul(high, high)))), rest);
}

}  // namespace

V portable_erf(Builder& b, V x) {
  V a = b.abs(x), far = odd(b, b.sub(b.ones(x.type), erfc_far(b, a)), x);
  return b.select(b.compare(a, 1.0, Cmp::kLt), erf_near(b, x), far);
}

V portable_erfc(Builder& b, V x) {
  V a = b.abs(x), far = erfc_far(b, a), negative = b.compare(x, 0.0, Cmp::kLt);
  V sided = b.select(negative, b.sub(b.constant(2, x.type), far), far);
  V near = b.sub(b.ones(x.type), erf_near(b, x));
  return b.select(b.compare(a, 1.0, Cmp::kLt), near, sided);
}

// S. Winitzki's approximation (2008), exact to 2e-3, then steps of Halley's method; next to 1 on
// what is left to 1, which loses nothing.
V portable_erf_inv(Builder& b, V x) {
  constexpr double kShape = 0.147;
  V a = b.abs(x), left = b.sub(b.ones(x.type), a);
  V l = b.add(b.log(left), b.unary("stablehlo.log_plus_one", a));
  l = b.select(b.compare(a, 0.5, Cmp::kLt), b.unary("stablehlo.log_plus_one", b.neg(b.mul(a, a))),
               l);
  V t = b.add(b.mul(l, 0.5), kTwoOverRootPi * std::numbers::inv_sqrtpi / kShape);
  V rest = b.mul(l, -1 / kShape), d = b.sqrt(b.add(b.mul(t, t), rest));
  V square = b.select(b.compare(t, 0.0, Cmp::kGt), b.div(rest, b.add(d, t)), b.sub(d, t));
  V y = b.sqrt(square);
  for (int step = 0; step < 2; ++step) {
    V error = b.select(b.compare(a, 0.5, Cmp::kLt), b.sub(portable_erf(b, y), a),
                       b.sub(left, portable_erfc(b, y)));
    V u = b.div(error, b.mul(b.exp(b.neg(b.mul(y, y))), kTwoOverRootPi));
    y = b.sub(y, b.div(u, b.add(b.mul(y, u), 1.0)));
  }
  y = b.select(b.compare(a, 1.0, Cmp::kEq), b.constant(kInf, x.type), y);
  return odd(b, y, x);
}

// --- gamma --------------------------------------------------------------------------------------

// Bernoulli's numbers B(2k) over what each asymptotic series has there.
constexpr std::array<double, 7> kBernoulli{1. / 6,  -1. / 30,     1. / 42, -1. / 30,
                                           5. / 66, -691. / 2730, 7. / 6};
constexpr double kLarge = 10;  // where the series are exact

// log |sin(pi x)| and cot(pi x) by how far x is from the next whole number.
static V to_whole(Builder& b, V x) { return b.sub(x, b.unary("stablehlo.round_nearest_even", x)); }

V portable_lgamma(Builder& b, V x) {
  V negative = b.compare(x, 0.0, Cmp::kLt), one = b.ones(x.type), product = one;
  V y = b.select(negative, b.sub(one, x), x);
  for (int i = 0; i < kLarge; ++i) {
    V small = b.compare(y, kLarge, Cmp::kLt);
    product = b.select(small, b.mul(product, y), product);
    y = b.select(small, b.add(y, 1.0), y);
  }
  std::array<double, kBernoulli.size()> c;
  for (size_t k = 0; k < c.size(); ++k)
    c[k] = kBernoulli[k] / static_cast<double>((2 * k + 2) * (2 * k + 1));
  V inverse = b.div(one, y);
  V tail = b.mul(inverse, polynomial(b, b.mul(inverse, inverse), c));
  V sum = b.sub(b.mul(b.sub(y, 0.5), b.log(y)), y);
  V positive = b.add(b.sub(sum, b.log(product)), tail);
  positive = b.add(positive, 0.5 * std::log(2 * std::numbers::pi));
  V apart = to_whole(b, x);
  V sine = b.unary("stablehlo.sine", b.mul(b.abs(apart), std::numbers::pi));
  V mirrored = b.sub(b.sub(b.constant(std::log(std::numbers::pi), x.type), b.log(sine)), positive);
  V pole = b.and_(negative, b.compare(apart, 0.0, Cmp::kEq));
  V r = b.select(negative, mirrored, positive);
  V infinite = b.or_(pole, b.compare(b.abs(x), kInf, Cmp::kEq));
  return b.select(infinite, b.constant(kInf, x.type), r);
}

V portable_digamma(Builder& b, V x) {
  V negative = b.compare(x, 0.0, Cmp::kLt), one = b.ones(x.type), zero = b.zeros(x.type);
  V y = b.select(negative, b.sub(one, x), x), sum = zero;
  for (int i = 0; i < kLarge; ++i) {
    V small = b.compare(y, kLarge, Cmp::kLt);
    sum = b.add(sum, b.select(small, b.div(one, y), zero));
    y = b.select(small, b.add(y, 1.0), y);
  }
  std::array<double, kBernoulli.size()> c;
  for (size_t k = 0; k < c.size(); ++k) c[k] = kBernoulli[k] / static_cast<double>(2 * k + 2);
  V inverse = b.div(one, y), square = b.mul(inverse, inverse);
  V tail = b.add(b.mul(inverse, 0.5), b.mul(square, polynomial(b, square, c)));
  V positive = b.sub(b.sub(b.log(y), tail), sum);
  V angle = b.mul(to_whole(b, x), std::numbers::pi);
  V cotangent = b.div(b.unary("stablehlo.cosine", angle), b.unary("stablehlo.sine", angle));
  V r = b.select(negative, b.sub(positive, b.mul(cotangent, std::numbers::pi)), positive);
  V pole = b.and_(negative, b.compare(b.floor(x), x, Cmp::kEq));
  r = b.select(pole, b.constant(kNan, x.type), r);
  return b.select(b.compare(x, kInf, Cmp::kEq), x, r);
}

// Euler-Maclaurin: ten terms, then the integral and twelve corrections.
V portable_zeta(Builder& b, V x, V q) {
  constexpr std::array<double, 12> kCorrections{
      // Bernoulli's B(2k) / (2k)!
      0.083333333333333333,    -0.0013888888888888889,  3.3068783068783069e-5,
      -8.2671957671957672e-7,  2.0876756987868099e-8,   -5.2841901386874932e-10,
      1.3382536530684679e-11,  -3.3896802963225829e-13, 8.5860620562778446e-15,
      -2.1748686985580619e-16, 5.5090028283602295e-18,  -1.3954464685812523e-19};
  auto power = [&](V base, V exponent) { return b.binary("stablehlo.power", base, exponent); };
  V minus_x = b.neg(x), sum = power(q, minus_x), w = q;
  for (int i = 1; i < 10; ++i) {
    w = b.add(w, 1.0);
    sum = b.add(sum, power(w, minus_x));
  }
  w = b.add(w, 1.0);
  V last = power(w, minus_x), integral = power(w, b.sub(b.ones(x.type), x));
  integral = b.div(integral, b.sub(x, 1.0));
  V term = b.mul(b.div(last, w), x), rest = b.mul(last, 0.5), w2 = b.mul(w, w);
  for (size_t k = 0; k < kCorrections.size(); ++k) {
    rest = b.add(rest, b.mul(term, kCorrections[k]));
    double at = 2 * static_cast<double>(k) + 1;
    term = b.mul(term, b.div(b.mul(b.add(x, at), b.add(x, at + 1)), w2));
  }
  rest = b.select(b.compare(last, 0.0, Cmp::kEq), b.zeros(x.type), rest);
  return b.add(b.add(sum, integral), rest);
}

}  // namespace tp::hlo
