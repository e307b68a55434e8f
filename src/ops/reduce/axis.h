// Linear maps along one axis: what pooling, resizing and their gradients are made of. A map is a
// table of taps made at lowering time (shapes are known), so the program holds slices, gathers and
// constants only. Pure functions; any thread, the Builder's owner.
#pragma once
#include <vector>

#include "ops/core/row.h"

namespace tp::ops {

struct Tap {
  int64_t source;
  double weight;
};
// For each position of the result, what it sums.
using TapTable = std::vector<std::vector<Tap>>;

// The map's transpose: what each of `sources` positions receives from the targets.
TapTable transpose_taps(const TapTable& taps, int64_t sources);

// Weights of whole x are whole.
// result[.., t, ..] = sum of weight * x[.., source, ..] over the taps of t. A position without taps
// is 0, and nothing but a position's own taps reaches it (0 * inf never arises).
V apply_taps(Builder& b, V x, int64_t dim, const TapTable& taps);

// x at the given positions of `dim`; a slice where the positions step evenly.
V take(Builder& b, V x, int64_t dim, Ints positions);

// result[stride * o + offsets[k]] += terms[k][o] along `dim`; what falls outside 0..size-1 is
// dropped.
V spread(Builder& b, std::span<const V> terms, Ints offsets, int64_t dim, int64_t stride,
         int64_t size);

// A rank-1 float constant, exact.
V constant_reals(Builder& b, std::span<const double> v, DType t);

// v, whose dims are x's dims `kept`, stretched over x's shape.
V stretch(Builder& b, V v, V x, Ints kept);

// dims of v with dims[dim] = n.
IntList with_dim(Ints dims, int64_t dim, int64_t n);

}  // namespace tp::ops
