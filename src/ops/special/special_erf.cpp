// The error function's relatives: erfcx, log_ndtr, ndtri.
#include <limits>
#include <numbers>

#include "ops/core/families.h"
#include "ops/special/erfcx_table.h"
#include "ops/special/special.h"
#include "ops/special/special_tables.h"

namespace tp::ops {

using hlo::Cmp;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Row i of the table for each element: [kErfcxPieces, kErfcxTerms] -> x's dims and kErfcxTerms.
V rows_of_table(Builder& b, V piece) {
  V table =
      b.constant_table(kErfcx, ir::make_type(DType::kF64, IntList{kErfcxPieces, kErfcxTerms}));
  IntList dims(piece.dims().begin(), piece.dims().end());
  hlo::GatherConfig c;
  c.offset_dims = {piece.rank()};
  c.collapsed = {0};
  c.start_index_map = {0};
  c.slice_sizes = {1, kErfcxTerms};
  c.index_vector_dim = piece.rank();
  dims.push_back(kErfcxTerms);
  return b.gather(table, piece, ir::make_type(DType::kF64, dims), c);
}

// exp(x^2) erfc(x) for 0 <= x <= 50, from y = 400 / (4 + x); eager adds up in float64 too.
V erfcx_piece(Builder& b, V y) {
  V piece = b.convert(b.min(b.max(b.floor(y), 0.0), 99.0), DType::kS32);
  V coefficients = rows_of_table(b, piece);
  V odd = b.add(b.mul(b.convert(piece, y.dtype()), 2.0), 1.0);
  V t = b.convert(b.sub(b.mul(y, 2.0), odd), DType::kF64);
  V sum;
  for (int64_t i = kErfcxTerms; i-- > 0;) {
    V c = b.reshape(b.slice_dim(coefficients, y.rank(), i, i + 1), y.dims());
    sum = sum ? b.add(b.mul(sum, t), c) : c;
  }
  sum = b.convert(sum, y.dtype());
  return b.select(b.compare(y, 100, Cmp::kGe), b.ones(y.type), sum);
}

// Above 50: five terms of the continued fraction, then one.
V erfcx_far(Builder& b, V x) {
  constexpr double kOneOverRootPi = 0.56418958354775628694807945156;
  V z = b.mul(x, x);
  V top = b.mul(b.add(b.mul(z, b.add(z, 4.5)), 2.0), kOneOverRootPi);
  V five = b.div(top, b.mul(x, b.add(b.mul(z, b.add(z, 5.0)), 3.75)));
  V one = b.div(b.constant(kOneOverRootPi, x.type), x);
  return b.select(b.compare(x, 5e7, Cmp::kGt), one, five);
}

}  // namespace

V erfcx(Builder& b, V x) {
  V size = b.abs(x);
  V near = erfcx_piece(b, b.div(b.constant(400.0, x.type), b.add(size, 4.0)));
  V above = b.select(b.compare(x, 50, Cmp::kGt), erfcx_far(b, x), near);
  V twice = b.mul(b.exp(b.mul(x, x)), 2.0);
  V below = b.select(b.compare(x, -6.1, Cmp::kLt), twice, b.sub(twice, near));
  below = b.select(b.compare(x, -26.7, Cmp::kLt), b.constant(kInf, x.type), below);
  V y = b.select(b.compare(x, 0, Cmp::kGe), above, below);
  return b.select(b.is_nan(x), x, y);
}

namespace {

V log_ndtr(Builder& b, V x) {
  V t = b.mul(x, std::numbers::sqrt2 / 2);
  V far = b.sub(b.log(b.mul(erfcx(b, b.neg(t)), 0.5)), b.mul(t, t));
  V half = b.mul(b.unary("chlo.erfc", t), -0.5);
  V near = b.unary("stablehlo.log_plus_one", half);
  return b.select(b.compare(x, -1, Cmp::kLt), far, near);
}

// The tails: y is the smaller of y0 and 1 - y0, at most exp(-2).
V ndtri_tail(Builder& b, V y) {
  V x = b.sqrt(b.mul(b.log(y), -2.0));
  V z = b.div(b.ones(x.type), x);
  auto term = [&](std::span<const double> p, std::span<const double> q) {
    return b.div(b.mul(z, polynomial(b, z, p)), polynomial(b, z, q));
  };
  V x1 = b.select(b.compare(x, 8, Cmp::kLt), term(kNdtriP1, kNdtriQ1), term(kNdtriP2, kNdtriQ2));
  return b.sub(b.sub(x, b.div(b.log(x), x)), x1);
}

V ndtri(Builder& b, V y0) {
  constexpr double kTail = 0.13533528323661269189, kRootTwoPi = 2.50662827463100050242E0;
  V one = b.ones(y0.type);
  V upper = b.compare(y0, b.constant(1 - kTail, y0.type), Cmp::kGt);
  V y = b.select(upper, b.sub(one, y0), y0);
  V d = b.sub(y, 0.5), d2 = b.mul(d, d);
  V ratio = b.div(b.mul(d2, polynomial(b, d2, kNdtriP0)), polynomial(b, d2, kNdtriQ0));
  V middle = b.mul(b.add(d, b.mul(d, ratio)), kRootTwoPi);
  V tail = ndtri_tail(b, y);
  tail = b.select(upper, tail, b.neg(tail));
  V x = b.select(b.compare(y, kTail, Cmp::kGt), middle, tail);
  V outside = b.or_(b.compare(y0, 0, Cmp::kLt), b.compare(y0, 1, Cmp::kGt));
  x = b.select(outside, nan_like(b, y0), x);
  x = b.select(is_zero(b, y0), b.constant(-kInf, y0.type), x);
  return b.select(b.compare(y0, one, Cmp::kEq), inf_like(b, y0), x);
}

const Row kRows[] = {
    {.name = "aten::special_erfcx",
     .lower = unary<erfcx>,
     .kernels = {{"erfcx_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_log_ndtr",
     .lower = unary<log_ndtr>,
     .kernels = {{"log_ndtr_cpu", takes::kExactOrWide}}},
    {.name = "aten::special_ndtri",
     .lower = unary<ndtri>,
     .kernels = {{"ndtri_cpu", takes::kExactOrWide}}},
};

}  // namespace

Family special_erf() { return kRows; }

}  // namespace tp::ops
