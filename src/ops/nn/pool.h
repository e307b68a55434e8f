// What the poolings share: windows along one axis, arg-max by eager's scan order, scatters into
// planes. Pure functions; any thread, the Builder's owner.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// Up to this many taps a window is unrolled into slices; longer ones are gathered and reduced.
constexpr int64_t kUnrolledWindow = 16;

// One spatial dim's window.
struct PoolWindow {
  int64_t axis;  // of the pooled value
  int64_t in, out, kernel, stride, padding, dilation;
  int64_t start(int64_t o) const { return o * stride - padding; }
};
// The windows of kernel_size/stride/padding/dilation over the last `spatial` dims.
std::vector<PoolWindow> pool_windows(const Args& a, Ints in, Ints out, size_t spatial);

// x with `value` in the padding (as far as windows reach).
V pad_windows(Builder& b, V x, V value, std::span<const PoolWindow> w);
// Of a padded x: what tap k of all windows sees.
V window_tap(Builder& b, V x, const PoolWindow& w, int64_t k);
// Of a padded x: the axis split into [out, kernel].
V stack_windows(Builder& b, V x, const PoolWindow& w);
// x at positions[out][length] of an axis, split into [out, length].
V take_stacked(Builder& b, V x, int64_t axis, Ints positions, int64_t out);

// Values with each one's flat position in its plane; -1 stands for padding.
struct Indexed {
  V value, index;
};
Indexed with_positions(Builder& b, V x, size_t spatial);
// Of two in scan order, the one that eager keeps: a later one if larger or NaN.
Indexed larger(Builder& b, Indexed x, Indexed y);
// The same over a whole axis, whatever order the compiler takes.
Indexed reduce_larger(Builder& b, Indexed x, int64_t axis);

// zeros(planes of `dims`) with `updates` put at `index` within each plane, added up or (unpool)
// set.
enum class Put { kAdd, kSet };
V put_in_planes(Builder& b, V updates, V index, Ints dims, size_t spatial, Put how);

// --- rules, <number of spatial dims>

template <size_t n>
void max_pool_lower(Lowering& l, std::vector<V>& out);
template <size_t n>
void max_pool_backward_lower(Lowering& l, std::vector<V>& out);
// Backward from saved indices alone: adaptive and fractional pooling.
template <size_t n>
void indexed_backward_lower(Lowering& l, std::vector<V>& out);
template <size_t n>
void fractional_lower(Lowering& l, std::vector<V>& out);
template <size_t n>
void unpool_lower(Lowering& l, std::vector<V>& out);
template <size_t n>
void avg_pool_lower(Lowering& l, std::vector<V>& out);
template <size_t n>
void avg_pool_backward_lower(Lowering& l, std::vector<V>& out);
template <size_t n>
void adaptive_avg_lower(Lowering& l, std::vector<V>& out);
template <size_t n>
void adaptive_avg_backward_lower(Lowering& l, std::vector<V>& out);
template <size_t n>
void adaptive_max_lower(Lowering& l, std::vector<V>& out);

// pool_types.cpp: the ops without a structured meta function
void max_pool3d_type(const Args& a, std::vector<Type>& out);
void max_pool3d_backward_type(const Args& a, std::vector<Type>& out);
template <size_t n>
void adaptive_avg_type(const Args& a, std::vector<Type>& out);
template <size_t n>
void adaptive_avg_backward_type(const Args& a, std::vector<Type>& out);
void unpool2d_type(const Args& a, std::vector<Type>& out);
void unpool3d_type(const Args& a, std::vector<Type>& out);
void fractional3d_backward_type(const Args& a, std::vector<Type>& out);

}  // namespace tp::ops
