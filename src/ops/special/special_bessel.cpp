// Bessel and Airy functions.
#include <limits>
#include <numbers>

#include "ops/core/families.h"
#include "ops/special/special.h"
#include "ops/special/special_tables.h"

namespace tp::ops {

using hlo::Cmp;

V polynomial(Builder& b, V x, std::span<const double> c) {
  V sum = b.constant(c[0], x.type);
  for (size_t i = 1; i < c.size(); ++i) sum = b.add(b.mul(sum, x), c[i]);
  return sum;
}

V chebyshev_series(Builder& b, V x, std::span<const double> c) {
  V b0 = b.constant(c[0], x.type), b1 = b.zeros(x.type), b2 = b1;
  for (size_t i = 1; i < c.size(); ++i) {
    b2 = b1;
    b1 = b0;
    b0 = b.add(b.sub(b.mul(x, b1), b2), c[i]);
  }
  return b.mul(b.sub(b0, b2), 0.5);
}

V nan_like(Builder& b, V x) { return b.constant(std::numeric_limits<double>::quiet_NaN(), x.type); }
V inf_like(Builder& b, V x) { return b.constant(std::numeric_limits<double>::infinity(), x.type); }

namespace {

// f32 takes the last `n` coefficients: the others are below its rounding.
std::span<const double> for_dtype(std::span<const double> c, DType t, size_t n) {
  return t == DType::kF64 ? c : c.last(n);
}

V small_argument(Builder& b, V size) { return b.sub(b.mul(size, 0.5), 2.0); }
V large_argument(Builder& b, V size, double c) {
  return b.sub(b.div(b.constant(c, size.type), size), 2.0);
}

}  // namespace

V scaled_i0(Builder& b, V x) {
  V size = b.abs(x);
  V small = chebyshev_series(b, small_argument(b, size), kI0A);
  V large = b.div(chebyshev_series(b, large_argument(b, size, 32), kI0B), b.sqrt(size));
  return b.select(b.compare(size, 8, Cmp::kLe), small, large);
}

namespace {

V odd(Builder& b, V x, V at_size) {
  return b.select(b.compare(x, 0, Cmp::kLt), b.neg(at_size), at_size);
}

V i1_small(Builder& b, V size) {
  return chebyshev_series(b, small_argument(b, size), for_dtype(kI1A, size.dtype(), 17));
}
V i1_large(Builder& b, V size) {
  return chebyshev_series(b, large_argument(b, size, 32), for_dtype(kI1B, size.dtype(), 7));
}

}  // namespace

V scaled_i1(Builder& b, V x) {
  V size = b.abs(x);
  V small = b.mul(i1_small(b, size), size);
  V large = b.div(i1_large(b, size), b.sqrt(size));
  return odd(b, x, b.select(b.compare(size, 8, Cmp::kLe), small, large));
}

namespace {

// The exponential comes in before the root is divided out: an infinite argument gives eager's NaN.
V i0(Builder& b, V x) {
  V size = b.abs(x), e = b.exp(size);
  V small = b.mul(e, chebyshev_series(b, small_argument(b, size), kI0A));
  V large = b.mul(e, chebyshev_series(b, large_argument(b, size, 32), kI0B));
  return b.select(b.compare(size, 8, Cmp::kLe), small, b.div(large, b.sqrt(size)));
}

V i1(Builder& b, V x) {
  V size = b.abs(x), e = b.exp(size);
  V small = b.mul(b.mul(e, size), i1_small(b, size));
  V large = b.div(b.mul(e, i1_large(b, size)), b.sqrt(size));
  return odd(b, x, b.select(b.compare(size, 8, Cmp::kLe), small, large));
}

// --- K0, K1 --------------------------------------------------------------------------------------

V in_domain(Builder& b, V x, V inside) {
  inside = b.select(b.compare(x, 0, Cmp::kLt), nan_like(b, x), inside);
  return b.select(is_zero(b, x), inf_like(b, x), inside);
}

enum class Scale { kPlain, kExponential };

template <int order, Scale scale>
V bessel_k(Builder& b, V x) {
  V series =
      chebyshev_series(b, b.sub(b.mul(x, x), 2.0), order ? std::span<const double>(kK1A) : kK0A);
  V log = b.log(b.mul(x, 0.5));
  V small =
      order ? b.add(b.mul(log, i1(b, x)), b.div(series, x)) : b.sub(series, b.mul(log, i0(b, x)));
  V large =
      chebyshev_series(b, large_argument(b, x, 8), order ? std::span<const double>(kK1B) : kK0B);
  if (scale == Scale::kExponential)
    small = b.mul(small, b.exp(x));
  else
    large = b.mul(b.exp(b.neg(x)), large);
  large = b.div(large, b.sqrt(x));
  return in_domain(b, x, b.select(b.compare(x, 2, Cmp::kLe), small, large));
}

// --- J0, J1, Y0, Y1 ------------------------------------------------------------------------------

constexpr double kRootTwoOverPi = 0.797884560802865355879892119868763737;
constexpr double kTwoOverPi = 0.636619772367581343075535053490057448;
constexpr double kPi = std::numbers::pi;

V rational(Builder& b, V x, std::span<const double> p, std::span<const double> q) {
  return b.div(polynomial(b, x, p), polynomial(b, x, q));
}

struct Expansion {
  std::span<const double> pp, pq, qp, qq;
  double phase;
};
const Expansion kOrder0 = {kBessel0PP, kBessel0PQ, kBessel0QP, kBessel0QQ, kPi / 4};
const Expansion kOrder1 = {kBessel1PP, kBessel1PQ, kBessel1QP, kBessel1QQ, 3 * kPi / 4};

enum class Which { kFirst, kSecond };  // J or Y

// Beyond 5: Hankel's asymptotic form.
V hankel(Builder& b, V x, const Expansion& e, Which which) {
  V w = b.div(b.constant(5.0, x.type), x);
  V z = &e == &kOrder0 ? b.div(b.constant(25.0, x.type), b.mul(x, x)) : b.mul(w, w);
  V p = rational(b, z, e.pp, e.pq), q = b.mul(w, rational(b, z, e.qp, e.qq));
  V angle = b.sub(x, e.phase);
  V c = b.unary("stablehlo.cosine", angle), s = b.unary("stablehlo.sine", angle);
  V wave =
      which == Which::kFirst ? b.sub(b.mul(p, c), b.mul(q, s)) : b.add(b.mul(p, s), b.mul(q, c));
  return b.div(b.mul(wave, kRootTwoOverPi), b.sqrt(x));
}

V bessel_j0(Builder& b, V x) {
  x = b.abs(x);
  V z = b.mul(x, x);
  V roots = b.mul(b.sub(z, 5.78318596294678452118e+00), b.sub(z, 3.04712623436620863991e+01));
  V near = b.div(b.mul(roots, polynomial(b, z, kBessel0RP)), polynomial(b, z, kBessel0RQ));
  V tiny = b.sub(b.ones(x.type), b.div(z, 4.0));
  near = b.select(b.compare(x, 0.00001, Cmp::kLt), tiny, near);
  V far = hankel(b, x, kOrder0, Which::kFirst);
  return b.select(b.compare(x, 5, Cmp::kLe), near, far);
}

V bessel_j1(Builder& b, V x) {
  V size = b.abs(x), z = b.mul(size, size);
  V near = b.mul(rational(b, z, kBessel1RP, kBessel1RQ), size);
  near = b.mul(near, b.sub(z, 1.46819706421238932572e+01));
  near = b.mul(near, b.sub(z, 4.92184563216946036703e+01));
  V far = hankel(b, size, kOrder1, Which::kFirst);
  return odd(b, x, b.select(b.compare(size, 5, Cmp::kLe), near, far));
}

V below_domain(Builder& b, V x, V near, V far) {
  V y = b.select(b.compare(x, 5, Cmp::kLe), near, far);
  y = b.select(b.compare(x, 0, Cmp::kLt), nan_like(b, x), y);
  return b.select(is_zero(b, x), b.neg(inf_like(b, x)), y);
}

V bessel_y0(Builder& b, V x) {
  V z = b.mul(x, x);
  V wave = b.mul(b.mul(b.log(x), kTwoOverPi), bessel_j0(b, x));
  V near = b.add(rational(b, z, kBessel0YP, kBessel0YQ), wave);
  return below_domain(b, x, near, hankel(b, x, kOrder0, Which::kSecond));
}

V bessel_y1(Builder& b, V x) {
  V z = b.mul(x, x);
  V wave = b.sub(b.mul(bessel_j1(b, x), b.log(x)), b.div(b.ones(x.type), x));
  V near = b.add(b.mul(x, rational(b, z, kBessel1YP, kBessel1YQ)), b.mul(wave, kTwoOverPi));
  return below_domain(b, x, near, hankel(b, x, kOrder1, Which::kSecond));
}

V spherical_j0(Builder& b, V x) {
  constexpr double kTerms[] = {1.0 / 6227020800.0,
                               -1.0 / 39916800.0,
                               1.0 / 362880.0,
                               -1.0 / 5040.0,
                               1.0 / 120.0,
                               -1.0 / 6.0,
                               1.0};
  V near = polynomial(b, b.mul(x, x), kTerms);
  V far = b.div(b.unary("stablehlo.sine", x), x);
  V y = b.select(b.compare(b.abs(x), 0.5, Cmp::kLt), near, far);
  V inf = b.compare(b.abs(x), std::numeric_limits<double>::infinity(), Cmp::kEq);
  return b.select(inf, b.zeros(x.type), y);
}

// --- Airy ----------------------------------------------------------------------------------------

constexpr double kOneOverRootPi = 5.64189583547756286948e-01;

V airy_below(Builder& b, V x) {
  V size = b.sqrt(b.neg(x));
  V zeta = b.div(b.mul(b.mul(x, -2.0), size), 3.0), z = b.div(b.ones(x.type), zeta);
  V zz = b.mul(z, z), t = b.add(zeta, kPi / 4);
  V f = b.div(b.mul(zz, polynomial(b, zz, kAiryAFN)), polynomial(b, zz, kAiryAFD));
  V g = b.div(b.mul(z, polynomial(b, zz, kAiryAGN)), polynomial(b, zz, kAiryAGD));
  V sine = b.mul(b.unary("stablehlo.sine", t), b.add(f, 1.0));
  V wave = b.sub(sine, b.mul(b.unary("stablehlo.cosine", t), g));
  return b.mul(b.div(b.constant(kOneOverRootPi, x.type), b.sqrt(size)), wave);
}

V airy_above(Builder& b, V x) {
  V root = b.sqrt(x), zeta = b.div(b.mul(b.mul(x, 2.0), root), 3.0);
  V ratio = rational(b, b.div(b.ones(x.type), zeta), kAiryAN, kAiryAD);
  V scale = b.mul(b.mul(b.sqrt(root), 2.0), b.exp(zeta));
  return b.div(b.mul(ratio, kOneOverRootPi), scale);
}

// Maclaurin's series; 14 terms reach float64's rounding for |x| < 2.09.
V airy_near(Builder& b, V x) {
  V z = b.mul(b.mul(x, x), x);
  V f = b.ones(x.type), g = x, m = f, n = x;
  double k = 1;
  for (int i = 0; i < 14; ++i, k += 3) {
    m = b.div(b.div(b.mul(m, z), k + 1), k + 2);
    n = b.div(b.div(b.mul(n, z), k + 2), k + 3);
    f = b.add(f, m);
    g = b.add(g, n);
  }
  return b.sub(b.mul(f, 0.355028053887817239260), b.mul(g, 0.258819403792806798405));
}

V airy_ai(Builder& b, V x) {
  V y = b.select(b.compare(x, -2.09, Cmp::kLt), airy_below(b, x), airy_near(b, x));
  y = b.select(b.compare(x, 2.09, Cmp::kGe), airy_above(b, x), y);
  y = b.select(b.compare(x, 103.892, Cmp::kGt), b.zeros(x.type), y);
  V inf = b.compare(b.abs(x), std::numeric_limits<double>::infinity(), Cmp::kEq);
  return b.select(inf, nan_like(b, x), y);
}

const Row kRows[] = {
    {.name = "aten::i0", .lower = unary<i0>, .kernels = {{"i0_vml_cpu", takes::kReals}}},
    {.name = "aten::special_i0e",
     .lower = unary<scaled_i0>,
     .kernels = {{"i0e_cpu", takes::kReals}}},
    {.name = "aten::special_i1", .lower = unary<i1>, .kernels = {{"i1_cpu", takes::kReals}}},
    {.name = "aten::special_i1e",
     .lower = unary<scaled_i1>,
     .kernels = {{"i1e_cpu", takes::kReals}}},
    {.name = "aten::special_modified_bessel_i0",
     .lower = unary<i0>,
     .kernels = {{"modified_bessel_i0_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_modified_bessel_i1",
     .lower = unary<i1>,
     .kernels = {{"modified_bessel_i1_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_modified_bessel_k0",
     .lower = unary<bessel_k<0, Scale::kPlain>>,
     .kernels = {{"modified_bessel_k0_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_modified_bessel_k1",
     .lower = unary<bessel_k<1, Scale::kPlain>>,
     .kernels = {{"modified_bessel_k1_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_scaled_modified_bessel_k0",
     .lower = with_args<bessel_k<0, Scale::kExponential>, "x">,
     .kernels = {{"scaled_modified_bessel_k0_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_scaled_modified_bessel_k1",
     .lower = with_args<bessel_k<1, Scale::kExponential>, "x">,
     .kernels = {{"scaled_modified_bessel_k1_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_bessel_j0",
     .lower = unary<bessel_j0>,
     .kernels = {{"bessel_j0_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_bessel_j1",
     .lower = unary<bessel_j1>,
     .kernels = {{"bessel_j1_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_bessel_y0",
     .lower = unary<bessel_y0>,
     .kernels = {{"bessel_y0_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_bessel_y1",
     .lower = unary<bessel_y1>,
     .kernels = {{"bessel_y1_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_spherical_bessel_j0",
     .lower = with_args<spherical_j0, "x">,
     .kernels = {{"spherical_bessel_j0_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_airy_ai",
     .lower = with_args<airy_ai, "x">,
     .kernels = {{"airy_ai_cpu", takes::kExactOrWide}}},
};

}  // namespace

Family special_bessel() { return kRows; }

}  // namespace tp::ops
