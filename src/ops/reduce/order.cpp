#include "ops/reduce/order.h"

#include <limits>

namespace tp::ops {
namespace {

using Red = Builder::Red;
constexpr double kInf = std::numeric_limits<double>::infinity();

V count(Builder& b, V size, Ints dims) {
  V some = b.convert(b.compare(size, 0.0, hlo::Cmp::kNe), size.dtype());
  return b.reduce(some, dims, Red::kSum);
}

// By the formula that all orders but 0 and infinities have. `p` and `inverse`, 1 / p, are 0-d.
V by_powers(Builder& b, V size, V p, V inverse, Ints dims) {
  auto power = [&b](V v, V exponent) {
    V wide = b.broadcast_to(b.convert(exponent, v.dtype()), v.dims());
    return b.binary("stablehlo.power", v, wide);
  };
  return power(b.reduce(power(size, p), dims, Red::kSum), inverse);
}

V of_any(Builder& b, V size, V p, Ints dims) {
  V norm = by_powers(b, size, p, b.div(b.ones(p.type), p), dims);
  auto where = [&](double order, V v) {
    V is = b.broadcast_to(b.compare(p, order, hlo::Cmp::kEq), norm.dims());
    norm = b.select(is, v, norm);
  };
  where(kInf, b.reduce(size, dims, Red::kMax));
  where(-kInf, b.reduce(size, dims, Red::kMin));
  where(0, count(b, size, dims));
  return norm;
}

}  // namespace

V norm_of(Lowering& l, std::string_view order, V size, Ints dims) {
  Builder& b = l.builder();
  if (l.input(order)) return of_any(b, size, l.number(order, ir::scalar_type(DType::kF64)), dims);
  double p = l.f_or(order, 2);
  if (p == kInf) return b.reduce(size, dims, Red::kMax);
  if (p == -kInf) return b.reduce(size, dims, Red::kMin);
  if (p == 0) return count(b, size, dims);
  if (p == 1) return b.reduce(size, dims, Red::kSum);
  if (p == 2) return b.sqrt(b.reduce(b.mul(size, size), dims, Red::kSum));
  DType t = size.dtype();
  return by_powers(b, size, b.scalar(p, t), b.scalar(1 / p, t), dims);
}

}  // namespace tp::ops
