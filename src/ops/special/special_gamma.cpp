// The regularized incomplete gamma functions, by the regions of Cephes and SciPy that PyTorch uses:
// a power series, a continued fraction, and the uniform expansion where a is large and near x. All
// in float64: the regions' borders then do not show in float32 results.
#include <array>
#include <limits>
#include <numbers>

#include "ops/core/families.h"
#include "ops/special/igamma_table.h"
#include "ops/special/special.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kMostSteps = 2000;

enum class Tail { kLower, kUpper };

// One call: arguments in float64 and the step at which sums end.
struct Point {
  V a, x;
  double epsilon;
};

constexpr double kLanczosG = 6.024680040776729583740234375;
constexpr std::array kLanczosTop = {
    0.006061842346248906525783753964555936883222, 0.5098416655656676188125178644804694509993,
    19.51992788247617482847860966235652136208,    449.9445569063168119446858607650988409623,
    6955.999602515376140356310115515198987526,    75999.29304014542649875303443598909137092,
    601859.6171681098786670226533699352302507,    3481712.15498064590882071018964774556468,
    14605578.08768506808414169982791359218571,    43338889.32467613834773723740590533316085,
    86363131.28813859145546927288977868422342,    103794043.1163445451906271053616070238554,
    56906521.91347156388090791033559122686859};
constexpr std::array kLanczosBottom = {1.,         66.,       1925.,     32670.,     357423.,
                                       2637558.,   13339535., 45995730., 105258076., 150917976.,
                                       120543840., 39916800., 0.};

std::array<double, 13> reversed(std::array<double, 13> c) {
  std::reverse(c.begin(), c.end());
  return c;
}

// Lanczos' sum, scaled by exp(-g); above 1 in powers of 1/a, which do not overflow.
V lanczos(Builder& b, V a) {
  V small = b.div(polynomial(b, a, kLanczosTop), polynomial(b, a, kLanczosBottom));
  V y = b.div(b.ones(a.type), a);
  V large =
      b.div(polynomial(b, y, reversed(kLanczosTop)), polynomial(b, y, reversed(kLanczosBottom)));
  return b.select(b.compare(a, 1, Cmp::kGt), large, small);
}

// x^a exp(-x) / gamma(a).
V factor(Builder& b, const Point& p) {
  V a = p.a, x = p.x;
  V apart = b.exp(b.sub(b.sub(b.mul(a, b.log(x)), x), b.unary("chlo.lgamma", a)));
  V fac = b.add(a, kLanczosG - 0.5);
  V root = b.div(b.sqrt(b.div(fac, std::numbers::e)), lanczos(b, a));
  V power = b.binary("stablehlo.power", b.div(x, fac), a);
  V near = b.mul(b.mul(root, b.exp(b.sub(a, x))), power);
  V ratio = b.div(b.add(b.sub(x, a), 0.5 - kLanczosG), fac);
  V bend = b.mul(a, b.sub(b.unary("stablehlo.log_plus_one", ratio), ratio));
  V far = b.mul(root, b.exp(b.add(bend, b.div(b.mul(x, 0.5 - kLanczosG), fac))));
  V small = b.and_(b.compare(a, 200, Cmp::kLt), b.compare(x, 200, Cmp::kLt));
  V close = b.compare(b.abs(b.sub(a, x)), b.mul(b.abs(a), 0.4), Cmp::kLe);
  return b.select(close, b.select(small, near, far), apart);
}

// Runs `step` on state v until no element is on: v[0] counts, v[1] is the mask.
std::vector<V> iterate(Builder& b, V on, std::vector<V> state, const hlo::Region& step) {
  std::vector<V> init{b.zeros(ir::scalar_type(DType::kS32)), on};
  init.insert(init.end(), state.begin(), state.end());
  auto more = [](Builder& c, std::span<const V> v) -> std::vector<V> {
    return {c.and_(any_of(c, v[1]), c.compare(v[0], static_cast<double>(kMostSteps), Cmp::kLt))};
  };
  auto body = [&](Builder& c, std::span<const V> v) -> std::vector<V> {
    std::vector<V> next = step(c, v);  // the mask of those that go on, then the new state
    std::vector<V> out{c.add(v[0], 1.0), c.and_(v[1], next[0])};
    for (size_t i = 1; i < next.size(); ++i) out.push_back(c.select(v[1], next[i], v[i + 1]));
    return out;
  };
  return b.while_loop(init, more, body);
}

// DLMF 8.11.4: the lower function.
V power_series(Builder& b, const Point& p, V on) {
  V one = b.ones(p.a.type);
  auto step = [&](Builder& c, std::span<const V> v) -> std::vector<V> {
    V r = c.add(v[2], 1.0), term = c.mul(v[3], c.div(v[5], r)), sum = c.add(v[4], term);
    return {c.compare(term, c.mul(sum, p.epsilon), Cmp::kGt), r, term, sum, v[5]};
  };
  V sum = iterate(b, on, {p.a, one, one, p.x}, step)[4];
  return b.div(b.mul(sum, factor(b, p)), p.a);
}

// DLMF 8.7.3: the upper function for small x.
V small_series(Builder& b, const Point& p, V on) {
  V one = b.ones(p.a.type), zero = b.zeros(p.a.type);
  auto step = [&](Builder& c, std::span<const V> v) -> std::vector<V> {
    V n = c.broadcast_to(c.convert(c.add(v[0], 1.0), DType::kF64), v[2].dims());
    V fac = c.mul(v[2], c.div(c.neg(v[4]), n));
    V term = c.div(fac, c.add(v[5], n)), sum = c.add(v[3], term);
    V go = c.compare(c.abs(term), c.mul(c.abs(sum), p.epsilon), Cmp::kGt);
    return {go, fac, sum, v[4], v[5]};
  };
  V sum = iterate(b, on, {one, zero, p.x, p.a}, step)[3];
  V power = b.mul(p.a, b.log(p.x));
  V first = b.unary("stablehlo.exponential_minus_one",
                    b.sub(power, b.unary("chlo.lgamma", b.add(p.a, 1.0))));
  V second = b.mul(b.exp(b.sub(power, b.unary("chlo.lgamma", p.a))), sum);
  return b.sub(b.neg(first), second);
}

// DLMF 8.9.2: the upper function. State: the last two numerators and denominators, and their ratio.
std::vector<V> fraction_step(Builder& c, std::span<const V> v, double epsilon) {
  constexpr double kBig = 4.503599627370496e15;
  V n = c.broadcast_to(c.convert(c.add(v[0], 1.0), DType::kF64), v[2].dims());
  V p1 = v[2], p2 = v[3], q1 = v[4], q2 = v[5], ans = v[6], a = v[7], x = v[8];
  V y = c.add(c.sub(c.ones(a.type), a), n);
  V z = c.add(c.add(x, y), c.add(n, 1.0)), yc = c.mul(y, n);
  V p = c.sub(c.mul(p1, z), c.mul(p2, yc)), q = c.sub(c.mul(q1, z), c.mul(q2, yc));
  V some = c.not_(is_zero(c, q)), r = c.div(p, q);
  V change = c.select(some, c.abs(c.div(c.sub(ans, r), r)), c.ones(a.type));
  V scale =
      c.select(c.compare(c.abs(p), kBig, Cmp::kGt), c.constant(1 / kBig, a.type), c.ones(a.type));
  return {c.compare(change, epsilon, Cmp::kGt),
          c.mul(p, scale),
          c.mul(p1, scale),
          c.mul(q, scale),
          c.mul(q1, scale),
          c.select(some, r, ans),
          a,
          x};
}

V continued_fraction(Builder& b, const Point& p, V on) {
  V one = b.ones(p.a.type), next = b.add(p.x, 1.0);
  V q = b.mul(b.add(b.sub(p.x, p.a), 2.0), p.x);
  auto step = [&](Builder& c, std::span<const V> v) { return fraction_step(c, v, p.epsilon); };
  V ans = iterate(b, on, {next, one, q, p.x, b.div(next, q), p.a, p.x}, step)[6];
  V fac = factor(b, p);
  return b.select(is_zero(b, fac), fac, b.mul(ans, fac));
}

// --- DLMF 8.12: a large, near x ------------------------------------------------------------------

// The table's polynomials in eta: one for each power of 1/a, first in the result.
V eta_polynomials(Builder& b, V eta) {
  V flat = b.reshape(eta, IntList{eta.type.numel()});
  int64_t n = kIgammaTerms;
  IntList dims{n, eta.type.numel()};
  V table = b.constant_table(kIgamma, ir::make_type(DType::kF64, IntList{n, n}));
  Type t = ir::make_type(DType::kF64, dims);
  // Horner's rule, the last column first; state: column, sum, eta, table.
  auto more = [](Builder& c, std::span<const V> v) -> std::vector<V> {
    return {c.compare(v[0], 0, Cmp::kGe)};
  };
  auto step = [&](Builder& c, std::span<const V> v) -> std::vector<V> {
    V at[] = {c.zeros(v[0].type), v[0]};
    V column = c.reshape(c.dynamic_slice(v[3], at, IntList{n, 1}), IntList{n});
    V sum = c.add(c.mul(v[1], c.broadcast_to(v[2], dims)), c.broadcast(column, t, IntList{0}));
    return {c.sub(v[0], 1), sum, v[2], v[3]};
  };
  V init[] = {b.constant_int(n - 1, ir::scalar_type(DType::kS32)), b.zeros(t), flat, table};
  return b.while_loop(init, more, step)[1];
}

// The sum over powers of 1/a; it ends where its terms grow again.
V uniform_sum(Builder& b, const Point& p, V eta) {
  V rows = eta_polynomials(b, eta);
  int64_t count = p.a.type.numel();
  // State: k, sum, a^-k, the last term's size, whether terms still shrink, the rows, a.
  auto more = [](Builder& c, std::span<const V> v) -> std::vector<V> {
    return {c.compare(v[0], static_cast<double>(kIgammaTerms), Cmp::kLt)};
  };
  auto step = [&](Builder& c, std::span<const V> v) -> std::vector<V> {
    V at[] = {v[0], c.zeros(v[0].type)};
    V row = c.dynamic_slice(v[5], at, IntList{1, count});
    V term = c.mul(c.reshape(row, v[1].dims()), v[2]), size = c.abs(term);
    V on = c.and_(v[4], c.compare(size, v[3], Cmp::kLe));
    return {c.add(v[0], 1),
            c.select(on, c.add(v[1], term), v[1]),
            c.div(v[2], v[6]),
            size,
            on,
            v[5],
            v[6]};
  };
  V init[] = {b.zeros(ir::scalar_type(DType::kS32)),
              b.zeros(p.a.type),
              b.ones(p.a.type),
              b.constant(kInf, p.a.type),
              b.ones(p.a.type.with(DType::kPred)),
              rows,
              p.a};
  return b.while_loop(init, more, step)[1];
}

V uniform(Builder& b, const Point& p, Tail tail) {
  V sigma = b.div(b.sub(p.x, p.a), p.a);
  V bend = b.sub(b.unary("stablehlo.log_plus_one", sigma), sigma);
  V eta = b.sqrt(b.max(b.mul(bend, -2.0), 0.0));
  eta = b.select(b.compare(p.x, p.a, Cmp::kLt), b.neg(eta), eta);
  double sign = tail == Tail::kLower ? -1 : 1;
  V half = b.mul(b.unary("chlo.erfc", b.mul(b.mul(eta, sign), b.sqrt(b.mul(p.a, 0.5)))), 0.5);
  V e = b.exp(b.mul(b.mul(b.mul(p.a, -0.5), eta), eta));
  constexpr double kTwoPi = 2 * std::numbers::pi_v<float>;  // eager's is a float also in float64
  V rest = b.div(b.mul(e, uniform_sum(b, p, eta)), b.sqrt(b.mul(p.a, kTwoPi)));
  return b.add(half, b.mul(rest, sign));
}

// --- regions -------------------------------------------------------------------------------------

V is_near(Builder& b, const Point& p) {
  V gap = b.div(b.abs(b.sub(p.x, p.a)), p.a);
  V middle = b.and_(b.compare(p.a, 20, Cmp::kGt), b.compare(p.a, 200, Cmp::kLt));
  middle = b.and_(middle, b.compare(gap, 0.3, Cmp::kLt));
  V limit = b.div(b.constant(4.5, p.a.type), b.sqrt(p.a));
  V large = b.and_(b.compare(p.a, 200, Cmp::kGt), b.compare(gap, limit, Cmp::kLt));
  return b.or_(middle, large);
}

// Where the upper function comes from the lower one's series.
V by_lower_series(Builder& b, const Point& p) {
  V tiny = b.compare(b.div(b.constant(-0.4, p.x.type), b.log(p.x)), p.a, Cmp::kLt);
  V middle = b.compare(b.mul(p.x, 1.1), p.a, Cmp::kLt);
  V low = b.select(b.compare(p.x, 0.5, Cmp::kLe), tiny, middle);
  return b.select(b.compare(p.x, 1.1, Cmp::kGt), b.compare(p.x, p.a, Cmp::kLt), low);
}

V edges(Builder& b, const Point& p, V y, Tail tail) {
  bool lower = tail == Tail::kLower;
  V zero = b.constant(lower ? 0 : 1, y.type), one = b.constant(lower ? 1 : 0, y.type);
  V nan = nan_like(b, y);
  y = b.select(b.or_(b.is_nan(p.a), b.is_nan(p.x)), nan, y);
  V a_inf = b.compare(p.a, kInf, Cmp::kEq), x_inf = b.compare(p.x, kInf, Cmp::kEq);
  y = b.select(x_inf, b.select(a_inf, nan, one), b.select(a_inf, zero, y));
  y = b.select(is_zero(b, p.x), zero, y);
  V positive = b.compare(p.x, 0, Cmp::kGt);
  y = b.select(is_zero(b, p.a), b.select(positive, one, nan), y);
  V outside = b.or_(b.compare(p.x, 0, Cmp::kLt), b.compare(p.a, 0, Cmp::kLt));
  return b.select(outside, nan, y);
}

template <Tail tail>
void incomplete_gamma(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type t = compute_type(l);
  double epsilon = t.dtype() == DType::kF64 ? 1.11022302462515654042E-16 : 5.9604644775390625E-8;
  Point p{b.convert(l.number("self", t), DType::kF64), b.convert(l.number("other", t), DType::kF64),
          epsilon};
  if (t.numel() == 0) return put(l, out, b.zeros(t));
  V one = b.ones(p.a.type);
  V inside = b.and_(b.compare(p.a, 0, Cmp::kGt), b.compare(p.x, 0, Cmp::kGt));
  inside = b.and_(inside, b.compare(b.add(p.a, p.x), kInf, Cmp::kLt));
  V direct = b.compare(p.x, b.max(p.a, 1.0), Cmp::kLe);  // the lower function's own region
  V near = is_near(b, p), upper_small = b.compare(p.x, 1.1, Cmp::kLe);
  V lower_of_upper = by_lower_series(b, p);
  V lower = tail == Tail::kLower ? b.or_(direct, lower_of_upper) : lower_of_upper;
  V rest = b.and_(inside, b.not_(near)), upper = b.and_(rest, b.not_(lower));
  V p_series = power_series(b, p, b.and_(rest, lower));
  V q_small = small_series(b, p, b.and_(upper, upper_small));
  V q_fraction = continued_fraction(b, p, b.and_(upper, b.not_(upper_small)));
  V q = b.select(upper_small, q_small, q_fraction);
  V y = tail == Tail::kLower ? b.select(lower, p_series, b.sub(one, q))
                             : b.select(lower, b.sub(one, p_series), q);
  y = b.select(near, uniform(b, p, tail), y);
  put(l, out, edges(b, p, y, tail));
}

const Row kRows[] = {
    {.name = "aten::igamma",
     .lower = incomplete_gamma<Tail::kLower>,
     .kernels = {{"igamma_cpu", takes::kFloats}}},
    {.name = "aten::igammac",
     .lower = incomplete_gamma<Tail::kUpper>,
     .kernels = {{"igammac_cpu", takes::kFloats}}},
};

}  // namespace

Family special_gamma() { return kRows; }

}  // namespace tp::ops
