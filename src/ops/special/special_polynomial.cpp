// Orthogonal polynomials of degree n, a tensor: closed forms where eager has them, the recurrence
// elsewhere. One loop serves all elements; each stops at its own degree.
#include <array>
#include <functional>
#include <numbers>

#include "ops/core/families.h"
#include "ops/special/special.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

// Polynomials p(k-1) and p(k) at x -> p(k + 1). k counts as eager counts it, converted to x's type.
using Step = std::function<V(Builder&, V x, V k, V q, V p)>;

struct Recurrence {
  V x, degree;   // degree: s64; elements below 2 are left alone
  V first;       // the polynomial of degree 1
  int64_t from;  // the first k
  int64_t by;
  V until;  // s64: k runs while it is below
  Step step;
};

// What the recurrence gives, with degrees 0 and 1 put in; NaN ends an element's loop, as in eager.
V run(Builder& b, const Recurrence& r) {
  Type scalar = ir::scalar_type(DType::kS64);
  auto active = [](Builder& c, V k, V q, V until) {
    return c.and_(c.compare(c.broadcast_to(k, q.dims()), until, Cmp::kLt), c.not_(c.is_nan(q)));
  };
  auto more = [&](Builder& c, std::span<const V> v) -> std::vector<V> {
    return {any_of(c, active(c, v[0], v[1], v[3]))};
  };
  auto body = [&](Builder& c, std::span<const V> v) -> std::vector<V> {
    V on = active(c, v[0], v[1], v[3]);
    V k = c.broadcast_to(c.convert(v[0], v[1].dtype()), v[1].dims());
    V next = r.step(c, v[4], k, v[1], v[2]);
    V count = c.add(v[0], c.constant_int(r.by, v[0].type));
    return {count, c.select(on, next, v[1]), c.select(on, v[1], v[2]), v[3], v[4]};
  };
  V one = b.ones(r.x.type);
  std::array<V, 5> init{b.constant_int(r.from, scalar), r.first, one, r.until, r.x};
  V y = b.while_loop(init, more, body)[1];
  return b.select(b.compare(r.degree, 0, Cmp::kEq), one, y);
}

// n as eager casts it; what no 64-bit integer holds becomes the smallest one, so below 0.
V degree_of(Builder& b, V n) {
  V fits = b.compare(b.abs(n), 0x1p63, Cmp::kLt);
  return b.convert(b.select(fits, n, b.constant(-1.0, n.type)), DType::kS64);
}

V negative_is_zero(Builder& b, V n, V y) {
  return b.select(b.compare(n, 0, Cmp::kLt), b.zeros(y.type), y);
}

V is_even(Builder& b, V n) { return b.compare(b.and_(n, b.constant_int(1, n.type)), 0, Cmp::kEq); }

V cosine(Builder& b, V x) { return b.unary("stablehlo.cosine", x); }
V sine(Builder& b, V x) { return b.unary("stablehlo.sine", x); }

// --- Chebyshev -----------------------------------------------------------------------------------

// x on [-1, 1] (shifted ones are moved there first), the degree as s64 and in x's type.
struct Point {
  V x, n, real;
  V angle;  // acos(x)
};

struct Chebyshev {
  V (*inside)(Builder&, const Point&);  // |x| < 1, high degrees
  V (*above)(Builder&, const Point&);   // at 1
  V (*below)(Builder&, const Point&);   // at -1, even degrees
  V (*odd)(Builder&, const Point&);     // at -1, odd degrees
  double slope, offset;                 // degree 1: slope x + offset
};

V one_of(Builder& b, const Point& p) { return b.ones(p.x.type); }
V minus_one(Builder& b, const Point& p) { return b.constant(-1, p.x.type); }
V degree_plus(Builder& b, const Point& p) {
  return b.convert(b.add(p.n, b.constant_int(1, p.n.type)), p.x.dtype());
}
V minus_degree_plus(Builder& b, const Point& p) { return b.neg(degree_plus(b, p)); }
V twice_degree_plus(Builder& b, const Point& p) {
  return b.convert(b.add(b.add(p.n, p.n), b.constant_int(1, p.n.type)), p.x.dtype());
}
V minus_twice_degree_plus(Builder& b, const Point& p) { return b.neg(twice_degree_plus(b, p)); }

V inside_t(Builder& b, const Point& p) { return cosine(b, b.mul(p.real, p.angle)); }
V inside_u(Builder& b, const Point& p) {
  V n = degree_plus(b, p), root = sine(b, p.angle), multiple = b.mul(n, p.angle);
  V edge = b.div(b.mul(n, cosine(b, multiple)), p.x);
  return b.select(is_zero(b, root), edge, b.div(sine(b, multiple), root));
}
V half_angles(Builder& b, const Point& p, V (*f)(Builder&, V)) {
  V top = f(b, b.mul(b.add(p.real, 0.5), p.angle));
  return b.div(top, f(b, b.mul(p.angle, 0.5)));
}
V at_minus_one(Builder& b, const Point& p, const Chebyshev& c) {
  return b.select(is_even(b, p.n), c.below(b, p), c.odd(b, p));
}
V inside_v(Builder& b, const Point& p) {
  V end = b.compare(sine(b, b.mul(p.angle, 0.5)), 1, Cmp::kEq);
  V edge = b.select(is_even(b, p.n), twice_degree_plus(b, p), minus_twice_degree_plus(b, p));
  return b.select(end, edge, half_angles(b, p, cosine));
}
V inside_w(Builder& b, const Point& p) {
  V end = b.compare(cosine(b, b.mul(p.angle, 0.5)), 1, Cmp::kEq);
  V edge = b.select(is_even(b, p.n), one_of(b, p), minus_one(b, p));
  edge = b.select(b.compare(p.x, 0, Cmp::kGt), twice_degree_plus(b, p), edge);
  return b.select(end, edge, half_angles(b, p, sine));
}

// The shifted kind's kernel has no case of its own at the upper end.
V inside_shifted_w(Builder& b, const Point& p) {
  V end = b.compare(cosine(b, b.mul(p.angle, 0.5)), 1, Cmp::kEq);
  V edge = b.select(is_even(b, p.n), one_of(b, p), minus_one(b, p));
  return b.select(end, edge, half_angles(b, p, sine));
}

constexpr Chebyshev kT = {inside_t, one_of, one_of, minus_one, 1, 0};
constexpr Chebyshev kU = {inside_u, degree_plus, degree_plus, minus_degree_plus, 2, 0};
constexpr Chebyshev kV = {inside_v, one_of, twice_degree_plus, minus_twice_degree_plus, 2, -1};
constexpr Chebyshev kW = {inside_w, twice_degree_plus, one_of, minus_one, 2, 1};

constexpr Chebyshev kShiftedW = {inside_shifted_w, twice_degree_plus, one_of, minus_one, 2, 1};

enum class Domain { kUnit, kShifted };  // [-1, 1] or [0, 1]

template <const Chebyshev& c, Domain domain, int highest_by_recurrence>
V chebyshev(Builder& b, V at, V degree) {
  V x = domain == Domain::kShifted ? b.sub(b.add(at, at), 1.0) : at;
  V n = degree_of(b, degree);
  Point p{x, n, b.convert(n, x.dtype()), b.unary("chlo.acos", x)};
  V top = b.compare(at, 1, Cmp::kEq);
  V bottom = b.compare(at, domain == Domain::kShifted ? 0 : -1, Cmp::kEq);
  V closed =
      b.and_(b.compare(n, highest_by_recurrence, Cmp::kGt), b.compare(b.abs(x), 1, Cmp::kLt));
  V done = b.or_(closed, b.or_(top, bottom));
  V twice = b.add(x, x), first = c.slope == 1 ? x : twice;
  if (c.offset != 0) first = b.add(first, c.offset);
  V until = b.select(done, b.zeros(n.type), n);
  Step step = [](Builder& r, V z, V, V q, V before) {
    return r.sub(r.mul(r.add(z, z), q), before);
  };
  V y = run(b, {x, n, first, 1, 1, until, step});
  y = b.select(closed, c.inside(b, p), y);
  y = b.select(bottom, at_minus_one(b, p, c), y);
  y = b.select(top, c.above(b, p), y);
  return negative_is_zero(b, n, y);
}

// --- Hermite, Laguerre, Legendre -----------------------------------------------------------------

// Degrees beyond are NaN: eager's bound on the size of the numbers.
V hermite_bound(Builder& b, V n, V y) {
  V high = b.compare(n, y.dtype() == DType::kF64 ? 512 : 128, Cmp::kGt);
  return negative_is_zero(b, n, b.select(high, nan_like(b, y), y));
}

V hermite_h(Builder& b, V x, V degree) {
  V n = degree_of(b, degree);
  V low = b.binary("stablehlo.minimum", n, b.constant_int(513, n.type));
  Step step = [](Builder& r, V z, V k, V q, V p) {
    return r.sub(r.mul(r.add(z, z), q), r.mul(k, p));
  };
  return hermite_bound(b, n, run(b, {x, n, b.add(x, x), 2, 2, b.add(low, low), step}));
}

V hermite_he(Builder& b, V x, V degree) {
  V n = degree_of(b, degree);
  V low = b.binary("stablehlo.minimum", n, b.constant_int(513, n.type));
  Step step = [](Builder& r, V z, V k, V q, V p) { return r.sub(r.mul(z, q), r.mul(k, p)); };
  return hermite_bound(b, n, run(b, {x, n, x, 1, 1, low, step}));
}

V laguerre(Builder& b, V x, V degree) {
  V n = degree_of(b, degree), one = b.ones(x.type), zero = is_zero(b, x);
  Step step = [](Builder& r, V z, V k, V q, V p) {
    V factor = r.add(r.add(k, k), r.sub(r.ones(z.type), z));
    return r.div(r.sub(r.mul(factor, q), r.mul(k, p)), r.add(k, 1.0));
  };
  V until = b.select(zero, b.zeros(n.type), n);
  V y = run(b, {x, n, b.sub(one, x), 1, 1, until, step});
  return negative_is_zero(b, n, b.select(zero, one, y));
}

V legendre(Builder& b, V x, V degree) {
  V n = degree_of(b, degree), one = b.ones(x.type);
  V edge = b.compare(b.abs(x), 1, Cmp::kEq);
  Step step = [](Builder& r, V z, V k, V q, V p) {
    V next = r.mul(r.mul(r.add(r.add(k, k), 1.0), z), q);
    return r.div(r.sub(next, r.mul(k, p)), r.add(k, 1.0));
  };
  V y = run(b, {x, n, x, 1, 1, b.select(edge, b.zeros(n.type), n), step});
  V up = b.or_(b.compare(x, 0, Cmp::kGt), is_even(b, n));
  y = b.select(edge, b.select(up, one, b.neg(one)), y);
  return negative_is_zero(b, n, y);
}

template <auto formula>
void of_degree(Lowering& l, std::vector<V>& out) {
  Type t = compute_type(l);
  V x = l.number("x", t), n = l.number("n", t);
  put(l, out, formula(l.builder(), x, n));
}

const Row kRows[] = {
    {.name = "aten::special_chebyshev_polynomial_t",
     .lower = of_degree<chebyshev<kT, Domain::kUnit, 6>>,
     .kernels = {{"chebyshev_polynomial_t_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_chebyshev_polynomial_u",
     .lower = of_degree<chebyshev<kU, Domain::kUnit, 8>>,
     .kernels = {{"chebyshev_polynomial_u_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_chebyshev_polynomial_v",
     .lower = of_degree<chebyshev<kV, Domain::kUnit, 8>>,
     .kernels = {{"chebyshev_polynomial_v_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_chebyshev_polynomial_w",
     .lower = of_degree<chebyshev<kW, Domain::kUnit, 8>>,
     .kernels = {{"chebyshev_polynomial_w_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_shifted_chebyshev_polynomial_t",
     .lower = of_degree<chebyshev<kT, Domain::kShifted, 6>>,
     .kernels = {{"shifted_chebyshev_polynomial_t_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_shifted_chebyshev_polynomial_u",
     .lower = of_degree<chebyshev<kU, Domain::kShifted, 6>>,
     .kernels = {{"shifted_chebyshev_polynomial_u_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_shifted_chebyshev_polynomial_v",
     .lower = of_degree<chebyshev<kV, Domain::kShifted, 6>>,
     .kernels = {{"shifted_chebyshev_polynomial_v_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_shifted_chebyshev_polynomial_w",
     .lower = of_degree<chebyshev<kShiftedW, Domain::kShifted, 4>>,
     .kernels = {{"shifted_chebyshev_polynomial_w_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_hermite_polynomial_h",
     .lower = of_degree<hermite_h>,
     .kernels = {{"hermite_polynomial_h_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_hermite_polynomial_he",
     .lower = of_degree<hermite_he>,
     .kernels = {{"hermite_polynomial_he_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_laguerre_polynomial_l",
     .lower = of_degree<laguerre>,
     .kernels = {{"laguerre_polynomial_l_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_legendre_polynomial_p",
     .lower = of_degree<legendre>,
     .kernels = {{"legendre_polynomial_p_cpu", takes::kExactOrWide}}},
};

}  // namespace

Family special_polynomial() { return kRows; }

}  // namespace tp::ops
