#include "hlo/workarounds.h"

#include <algorithm>
#include <array>
#include <limits>

#include "hlo/builder.h"

namespace tp::hlo {

// --- kBitcasts -----------------------------------------------------------------------------------

// XLA makes one bitcast of two, whatever their widths, and shapes then no longer fit. So what was
// bitcast before (and only reshaped since) is bitcast from where it started; and for what XLA alone
// finds to be a bitcast's result (a concat of its slices), widening takes and gives other shapes
// than narrowing: [n, k] -> [n] and [1, n] -> [1, n, k], so that a reshape stands between any two.
V Builder::bitcast(V v, Type t) {
  if (v.type == t) return v;
  if (auto start = bits_.find(v.id); start != bits_.end() && target_.makes(Mistake::kBitcasts))
    v = start->second;
  int64_t from = ir::dtype_size(v.dtype()), to = ir::dtype_size(t.dtype()), n = v.type.numel();
  if (v.dtype() == t.dtype()) return reshape(v, t.dims());
  IntList in(t.dims().begin(), t.dims().end()), out = in;
  if (from < to) in = {n * from / to, to / from}, out = {n * from / to};
  if (from > to) in = {1, n}, out = {1, n, from / to};
  Type type = ir::make_type(t.dtype(), out);
  V bits = reshaped("stablehlo.bitcast_convert", reshape(v, in), type);
  bits_.emplace(bits.id, v);
  return reshape(bits, t.dims());
}

// --- kUpdates ------------------------------------------------------------------------------------

// XLA fuses what makes an update into an update in place, but for a maker that reads the updated
// operand elsewhere, and it knows the operand by name only. In z = x.reshape(-1); z[1:] = x[0, :-1]
// it is another shape's name: the update would read what it had written. So there the update is
// selected. XLA itself reshapes what has dims of 1, and what it computes (a gather's result, sums
// of reshaped terms); a scatter of one window becomes an update.
bool Builder::reads_itself(const V& base, std::span<const V> makers) const {
  bool ones = base.rank() > 1 && std::ranges::find(base.dims(), 1) != base.dims().end();
  if (!target_.makes(Mistake::kUpdates) || (base.kept && !ones)) return false;
  return std::any_of(makers.begin(), makers.end(),
                     [&](const V& v) { return lineage_.made_from(v.id, base.origin()); });
}

V Builder::kept(V v) {
  v.kept = true;
  return v;
}

// What `put` and `combine` would make of base in place, made apart.
V Builder::selected(V base, V update, const std::function<V(V base, V part)>& put,
                    const Region& combine) {
  Type pred = base.type.with(DType::kPred);
  V mask = put(zeros(pred), ones(pred.with(update.dims())));
  std::array<V, 2> both{base, put(zeros(base.type), update)};
  return kept(select(mask, combine(*this, both)[0], base));
}

// --- kBoolSums -----------------------------------------------------------------------------------

V Builder::add(V a, V b) {
  bool logic = a.dtype() == DType::kPred && target_.makes(Mistake::kBoolSums);
  return binary(logic ? "stablehlo.or" : "stablehlo.add", a, b);
}

// --- kSquares ------------------------------------------------------------------------------------

// What drops an abs of a square does not look through unsigned products,
// nor into the select of `abs`.
V Builder::mul(V a, V b) {
  DType d = a.dtype();
  if (!ir::is_int(d) || ir::is_unsigned(d) || !target_.makes(Mistake::kSquares))
    return binary(d == DType::kPred ? "stablehlo.and" : "stablehlo.multiply", a, b);
  DType u = ir::unsigned_dtype(d);
  V x = bitcast(a, a.type.with(u)), y = bitcast(b, b.type.with(u));
  V p = binary("stablehlo.multiply", x, y);
  return bitcast(p, p.type.with(d));
}

V Builder::abs(V a) {
  if (ir::is_unsigned(a.dtype())) return a;
  if (ir::is_int(a.dtype()) && target_.makes(Mistake::kSquares))
    return select(compare(a, 0, Cmp::kLt), neg(a), a);
  V size = op("stablehlo.abs", {a}, a.type.with(ir::real_dtype(a.dtype())));
  return ir::is_complex(a.dtype()) ? infinite_where_a_part_is(a, size) : size;
}

// As hypot of C: an infinite part makes it infinite, though the other is nan. XLA gives nan then.
V Builder::infinite_where_a_part_is(V a, V size) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto infinite = [&](const char* part) {
    V x = op(part, {a}, size.type);
    return compare(op("stablehlo.abs", {x}, size.type), kInfinity, Cmp::kEq);
  };
  V some = or_(infinite("stablehlo.real"), infinite("stablehlo.imag"));
  return select(some, constant(kInfinity, size.type), size);
}

// --- kArctangents --------------------------------------------------------------------------------

// atan2 by 2 of twice x: doubling is exact, and nothing is left of the constant 1.
V Builder::atan(V x) {
  if (!target_.makes(Mistake::kArctangents)) return unary("chlo.atan", x);
  return binary("stablehlo.atan2", add(x, x), constant(2, x.type));
}

}  // namespace tp::hlo
