#include "ops/reduce/order.h"

#include <limits>

namespace tp::ops {

V norm_of_order(Builder& b, V size, V p, Ints dims) {
  using Red = Builder::Red;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  auto as = [&](V v, Type t) { return b.broadcast_to(b.convert(v, t.dtype()), t.dims()); };
  V sum = b.reduce(b.binary("stablehlo.power", size, as(p, size.type)), dims, Red::kSum);
  V norm = b.binary("stablehlo.power", sum, as(b.div(b.ones(p.type), p), sum.type));
  auto where = [&](double order, V v) {
    V is = b.broadcast_to(b.compare(p, order, hlo::Cmp::kEq), norm.dims());
    norm = b.select(is, v, norm);
  };
  where(kInf, b.reduce(size, dims, Red::kMax));
  where(-kInf, b.reduce(size, dims, Red::kMin));
  V some = b.convert(b.compare(size, 0.0, hlo::Cmp::kNe), size.dtype());
  where(0, b.reduce(some, dims, Red::kSum));
  return norm;
}

}  // namespace tp::ops
