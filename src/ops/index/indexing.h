// Gathers, scatters, scans and sorts that several families share. Indices that are out of range
// cannot raise inside a program: gathers clamp them, scatters drop them. Pure functions; any
// thread, the Builder's owner.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "ops/core/row.h"

namespace tp::ops {

IntList iota_dims(int64_t n);  // 0, 1, .. n-1
IntList dims_of(Type t);
int64_t dim_size(Ints dims, int64_t dim);  // a 0-d tensor counts as one element along dim 0
V as_1d(Builder& b, V v);                  // flattened
// 0-d becomes 1-d, so that `dim` exists.
V at_least_1d(Builder& b, V v);
// Python's negative indices, for a dim of `size`.
V wrap_index(Builder& b, V index, int64_t size);
// v, whose dims are a 1-d list, along `dim` of dims.
V along(Builder& b, V list, Ints dims, int64_t dim);
// 0, 1, .. along `dim`.
V positions(Builder& b, Ints dims, int64_t dim, DType t);

// x at the (wrapped) positions in 1-d `index` along `dim`.
V take_along_list(Builder& b, V x, V index, int64_t dim);
// torch.gather: x and index of one rank; index wrapped, no larger than x but along `dim`.
V gather_along(Builder& b, V x, V index, int64_t dim);

enum class Combine { kSet, kAdd, kMul, kMax, kMin };
hlo::Region combine_region(Combine how);
// torch.scatter: src of the index's dims.
V scatter_along(Builder& b, V x, V index, V src, int64_t dim, Combine how);
// x[.., index[i], ..] combined with src[.., i, ..] along `dim`; index 1-d.
V scatter_list(Builder& b, V x, V index, V src, int64_t dim, Combine how);

// Inclusive running reduction along `dim`. Blocks of a fixed length, then the blocks' ends: linear
// work without relying on a plugin's rewrite of long windows.
V running(Builder& b, V v, int64_t dim, Builder::Red how);
inline V running_sum(Builder& b, V v, int64_t dim) {
  return running(b, v, dim, Builder::Red::kSum);
}
// The same for any associative step, in log2(n) passes: step(earlier, later) replaces later.
using ScanStep = std::function<V(Builder&, V earlier, V later)>;
V running(Builder& b, V v, int64_t dim, const ScanStep& step);

// Number of true elements up to each place of the flattened mask, minus one: which of a packed
// list's elements a true place takes.
V mask_ranks(Builder& b, V mask);

struct Sorted {
  V values, indices;  // indices s64
};
// Stable, NaN above everything, as eager sorts.
Sorted sort_along(Builder& b, V v, int64_t dim, bool descending);

}  // namespace tp::ops
