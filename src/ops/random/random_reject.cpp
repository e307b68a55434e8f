// The algorithms are eager's: Marsaglia and Tsang's for gamma, Hoermann's transformed rejection
// (PTRS, BTRS) for large Poisson rates and binomial counts, sums of waiting times for small ones.
#include "ops/random/random_reject.h"

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/helpers.h"
#include "ops/random/random_bits.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

// Proposals are accepted with a chance of at least a half: nobody gets here.
constexpr double kMostRounds = 1000;

V log1p(Builder& b, V x) { return b.unary("stablehlo.log_plus_one", x); }
V at_least(Builder& b, V x, double c) { return b.compare(x, c, Cmp::kGe); }

// What a round proposes, and whether each element takes it.
struct Round {
  V accepted, value;
};
using Propose = std::function<Round(Builder& b, Random& random, std::span<const V> given)>;

// One value for each element of `given`'s shape; `value` where `on` is false from the start.
V draw_until_accepted(Builder& b, Random& random, V on, V value, std::span<const V> given,
                      const Propose& propose) {
  std::vector<V> init{b.zeros(ir::scalar_type(DType::kS32)), random.state(), on, value};
  init.insert(init.end(), given.begin(), given.end());
  auto more = [](Builder& c, std::span<const V> v) -> std::vector<V> {
    return {c.and_(any_of(c, v[2]), c.compare(v[0], kMostRounds, Cmp::kLt))};
  };
  auto body = [&](Builder& c, std::span<const V> v) -> std::vector<V> {
    Random inner(c, v[1]);
    Round r = propose(c, inner, v.subspan(4));
    V taken = c.and_(v[2], r.accepted);
    std::vector<V> next{c.add(v[0], 1.0), inner.state(), c.and_(v[2], c.not_(r.accepted)),
                        c.select(taken, r.value, v[3])};
    next.insert(next.end(), v.begin() + 4, v.end());
    return next;
  };
  std::vector<V> end = b.while_loop(init, more, body);
  random.resume(end[1]);
  return end[3];
}

void need_float(DType t, const char* kernel, bool halves) {
  bool fits =
      t == DType::kF32 || t == DType::kF64 || (halves && (t == DType::kF16 || t == DType::kBF16));
  if (!fits) fail(Code::kNotImplemented, not_implemented_for(kernel, t));
}

// --- gamma

double least(DType t) {
  return t == DType::kF64 ? std::numeric_limits<double>::min()
                          : double{std::numeric_limits<float>::min()};
}

// NaN counts as too small, as in eager.
V not_below(Builder& b, V x, double low) {
  V least = b.constant(low, x.type);
  return b.select(b.compare(x, least, Cmp::kGt), x, least);
}

// A draw for alpha where that is at least 1, and for alpha + 1 below, whose `boost` is still to be
// added to its logarithm.
struct GammaDraw {
  V value, boost;
};

GammaDraw draw_gamma(Builder& b, Random& random, V alpha) {
  V small = b.compare(alpha, 1, Cmp::kLt);
  V d = b.sub(b.select(small, b.add(alpha, 1.0), alpha), 1.0 / 3);
  V c = b.rsqrt(b.mul(d, 9.0));
  V boost = b.div(b.log(random.open_uniform(alpha.type)), alpha);
  auto propose = [](Builder& k, Random& r, std::span<const V> given) -> Round {
    V x = r.normal(given[0].type), u = r.open_uniform(x.type), square = k.mul(x, x);
    V y = k.add(k.mul(given[1], x), 1.0), v = k.mul(y, k.mul(y, y));
    V squeeze = k.sub(k.ones(x.type), k.mul(k.mul(square, square), 0.0331));
    V bend = k.mul(given[0], k.add(k.sub(k.ones(x.type), v), k.log(v)));
    V inside = k.or_(k.compare(u, squeeze, Cmp::kLt),
                     k.compare(k.log(u), k.add(k.mul(square, 0.5), bend), Cmp::kLt));
    return {k.and_(k.not_(k.compare(y, 0, Cmp::kLe)), inside), k.mul(given[0], v)};
  };
  V given[] = {d, c};
  V all = b.ones(alpha.type.with(DType::kPred));
  V value = draw_until_accepted(b, random, all, d, given, propose);
  return {value, b.select(small, boost, b.zeros(boost.type))};
}

// --- Poisson

// Below a rate of 10: the number of steps until the sum of the probabilities is above u.
V poisson_by_sums(Builder& b, Random& random, V rate, V on) {
  V u = random.open_uniform(rate.type), p = b.exp(b.neg(rate)), zero = b.zeros(rate.type);
  on = b.and_(on, b.compare(u, p, Cmp::kGt));
  std::vector<V> init{on, zero, p, p, u, rate};
  auto more = [](Builder& c, std::span<const V> v) -> std::vector<V> { return {any_of(c, v[0])}; };
  auto body = [](Builder& c, std::span<const V> v) -> std::vector<V> {
    V k = c.select(v[0], c.add(v[1], 1.0), v[1]);
    V p = c.select(v[0], c.div(c.mul(v[2], v[5]), k), v[2]);
    V sum = c.select(v[0], c.add(v[3], p), v[3]);
    // The sum stops short of 1 by its rounding.
    V go = c.and_(c.compare(v[4], sum, Cmp::kGt), c.compare(k, 100, Cmp::kLt));
    return {c.and_(v[0], go), k, p, sum, v[4], v[5]};
  };
  return b.while_loop(init, more, body)[1];
}

Round poisson_round(Builder& b, Random& random, V rate) {
  V root = b.sqrt(rate), log_rate = b.log(rate);
  V wide = b.add(b.mul(root, 2.53), 0.931), a = b.add(b.mul(wide, 0.02483), -0.059);
  V inverse = b.add(b.div(b.constant(1.1328, rate.type), b.sub(wide, 3.4)), 1.1239);
  V quick =
      b.sub(b.constant(0.9277, rate.type), b.div(b.constant(3.6224, rate.type), b.sub(wide, 2.0)));
  V u = b.sub(random.open_uniform(rate.type), 0.5), v = random.open_uniform(rate.type);
  V us = b.sub(b.constant(0.5, rate.type), b.abs(u));
  V slope = b.add(b.div(b.mul(a, 2.0), us), wide);
  V k = b.floor(b.add(b.add(b.mul(slope, u), rate), 0.43));
  V surely = b.and_(at_least(b, us, 0.07), b.compare(v, quick, Cmp::kLe));
  V never = b.or_(b.compare(k, 0, Cmp::kLt),
                  b.and_(b.compare(us, 0.013, Cmp::kLt), b.compare(v, us, Cmp::kGt)));
  V have = b.sub(b.add(b.log(v), b.log(inverse)), b.log(b.add(b.div(a, b.mul(us, us)), wide)));
  V may = b.sub(b.sub(b.mul(k, log_rate), rate), b.unary("chlo.lgamma", b.add(k, 1.0)));
  V fits = b.and_(b.not_(never), b.compare(have, may, Cmp::kLe));
  return {b.or_(surely, fits), k};
}

// --- binomial

// Few successes: how many waiting times for one fit into the count.
V binomial_by_waiting(Builder& b, Random& random, V count, V chance, V on) {
  V zero = b.zeros(count.type);
  std::vector<V> init{random.state(), on, zero, zero, count, log1p(b, b.neg(chance))};
  auto more = [](Builder& c, std::span<const V> v) -> std::vector<V> { return {any_of(c, v[1])}; };
  auto body = [](Builder& c, std::span<const V> v) -> std::vector<V> {
    Random inner(c, v[0]);
    V wait = c.unary("stablehlo.ceil", c.div(c.log(inner.open_uniform(v[4].type)), v[5]));
    V sum = c.add(v[2], wait);
    V go = c.and_(v[1], c.compare(sum, v[4], Cmp::kLe));
    return {inner.state(), go, sum, c.select(go, c.add(v[3], 1.0), v[3]), v[4], v[5]};
  };
  std::vector<V> end = b.while_loop(init, more, body);
  random.resume(end[0]);
  return end[3];
}

// log(k! (n - k)!)
V log_factorials(Builder& b, V k, V n) {
  V first = b.unary("chlo.lgamma", b.add(k, 1.0));
  return b.add(first, b.unary("chlo.lgamma", b.add(b.sub(n, k), 1.0)));
}

Round binomial_round(Builder& b, Random& random, V n, V p) {
  V odds = b.div(p, b.sub(b.ones(p.type), p)), mean = b.mul(n, p);
  V deviation = b.sqrt(b.mul(mean, b.sub(b.ones(p.type), p)));
  V wide = b.add(b.mul(deviation, 2.53), 1.15);
  V a = b.add(b.add(b.mul(wide, 0.0248), b.mul(p, 0.01)), -0.0873);
  V quick = b.sub(b.constant(0.92, p.type), b.div(b.constant(4.2, p.type), wide));
  V alpha = b.mul(b.add(b.div(b.constant(5.1, p.type), wide), 2.83), deviation);
  V mode = b.floor(b.mul(b.add(n, 1.0), p));
  V u = b.sub(random.open_uniform(p.type), 0.5), v = random.open_uniform(p.type);
  V us = b.sub(b.constant(0.5, p.type), b.abs(u));
  V slope = b.add(b.div(b.mul(a, 2.0), us), wide);
  V k = b.floor(b.add(b.add(b.mul(slope, u), mean), 0.5));
  V surely = b.and_(at_least(b, us, 0.07), b.compare(v, quick, Cmp::kLe));
  V inside = b.and_(at_least(b, k, 0), b.compare(k, n, Cmp::kLe));
  V have = b.log(b.div(b.mul(v, alpha), b.add(b.div(a, b.mul(us, us)), wide)));
  V may = b.sub(log_factorials(b, mode, n), log_factorials(b, k, n));
  may = b.add(may, b.mul(b.sub(k, mode), b.log(odds)));
  return {b.and_(inside, b.or_(surely, b.compare(have, may, Cmp::kLe))), k};
}

// For a chance of at most a half.
V draw_binomial(Builder& b, Random& random, V n, V p) {
  V large = at_least(b, b.mul(n, p), 10);
  V some = b.and_(b.compare(n, 0, Cmp::kGt), b.compare(p, 0, Cmp::kGt));
  V few = binomial_by_waiting(b, random, n, p, b.and_(some, b.not_(large)));
  // Where there is nothing to draw: numbers that do no harm.
  V given[] = {b.select(large, n, b.constant(100, n.type)),
               b.select(large, p, b.constant(0.5, p.type))};
  auto propose = [](Builder& c, Random& r, std::span<const V> v) {
    return binomial_round(c, r, v[0], v[1]);
  };
  return draw_until_accepted(b, random, large, few, given, propose);
}

}  // namespace

void standard_gamma_type(const Args& a, std::vector<Type>& out) {
  need_float(a.type("self").dtype(), "gamma_cpu", false);
  type_same(a, out);
}
void standard_gamma_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  Random random(l);
  GammaDraw g = draw_gamma(b, random, l.in("self"));
  out.push_back(not_below(b, b.mul(g.value, b.exp(g.boost)), least(l.out().dtype())));
}

void dirichlet_type(const Args& a, std::vector<Type>& out) {
  need_float(a.type("self").dtype(), "dirichlet", false);
  type_same(a, out);
}
// Gamma draws over their sum, by their logarithms: those of a small alpha are too small for a
// float. Eager's, in double, are no smaller than the least double.
void dirichlet_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  V alpha = l.in("self");
  if (alpha.rank() == 0) alpha = b.reshape(alpha, IntList{1});
  Random random(l);
  GammaDraw g = draw_gamma(b, random, alpha);
  V logs =
      not_below(b, b.add(b.log(g.value), g.boost), std::log(std::numeric_limits<double>::min()));
  int64_t last = alpha.rank() - 1;
  IntList kept;
  for (int64_t i = 0; i < last; ++i) kept.push_back(i);
  auto along = [&](V v) { return b.broadcast(v, logs.type, kept); };
  V parts = b.exp(b.sub(logs, along(b.reduce(logs, {&last, 1}, Builder::Red::kMax))));
  V share = b.div(parts, along(b.reduce(parts, {&last, 1}, Builder::Red::kSum)));
  double below_one = l.out().dtype() == DType::kF64 ? std::nextafter(1.0, 0.0)
                                                    : double{std::nextafter(1.0F, 0.0F)};
  share = b.min(not_below(b, share, least(l.out().dtype())), below_one);
  out.push_back(b.reshape(share, l.out().dims()));
}

void poisson_type(const Args& a, std::vector<Type>& out) {
  need_float(a.type("self").dtype(), "poisson_cpu", true);
  type_same(a, out);
}
// Eager raises for rates that are negative or NaN; to look would be a read: they give NaN.
void poisson_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  Random random(l);
  V rate = b.convert(l.in("self"), DType::kF64);
  V finite = b.compare(rate, std::numeric_limits<double>::infinity(), Cmp::kLt);
  V large = at_least(b, rate, 10), zero = b.zeros(rate.type);
  V few = poisson_by_sums(b, random, b.select(large, zero, rate), b.not_(large));
  V given[] = {b.select(large, rate, b.constant(10, rate.type))};
  V k = draw_until_accepted(
      b, random, b.and_(large, finite), few, given,
      [](Builder& c, Random& r, std::span<const V> v) { return poisson_round(c, r, v[0]); });
  k = b.select(b.and_(large, b.not_(finite)), rate, k);
  V nan = b.constant(std::numeric_limits<double>::quiet_NaN(), k.type);
  put(l, out, b.select(at_least(b, rate, 0), k, nan));
}

void binomial_type(const Args& a, std::vector<Type>& out) {
  Type n = a.type("count"), p = a.type("prob");
  for (auto [name, t] : {std::pair("count", n), std::pair("probs", p)})
    if (!ir::is_float(t.dtype()))
      fail(Code::kValue, cat("binomial only supports floating-point dtypes for ", name,
                             ", got: ", eager_name(t.dtype()).scalar));
  if (n.dtype() != p.dtype())
    fail(Code::kRuntime, cat("Found dtype ", eager_name(p.dtype()).scalar, " but expected ",
                             eager_name(n.dtype()).scalar));
  need_float(n.dtype(), "binomial_cpu", false);
  out.push_back(n.with(broadcast_dims(n.dims(), p.dims())));
}
void binomial_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  Random random(l);
  Type t = l.out().with(DType::kF64);
  V n = l.number("count", t), p = l.number("prob", t);
  V often = b.compare(p, 0.5, Cmp::kGt), rest = b.sub(b.ones(t), p);
  V k = draw_binomial(b, random, n, b.select(often, rest, p));
  k = b.select(often, b.sub(n, k), k);
  k = b.select(b.compare(p, 1, Cmp::kGe), n, k);
  V none = b.or_(b.compare(n, 0, Cmp::kLe), b.compare(p, 0, Cmp::kLe));
  k = b.select(none, b.zeros(t), k);
  V odd = b.and_(b.not_(none), b.or_(b.is_nan(n), b.is_nan(p)));
  put(l, out, b.select(odd, b.constant(std::numeric_limits<double>::quiet_NaN(), t), k));
}

}  // namespace tp::ops
