// Max pooling with indices, its backward, and unpooling. Axes are pooled one after another, last
// first: the first maximum along a row, then the first along a column, is the first in scan order.
#include "ops/nn/pool.h"
#include "ops/reduce/axis.h"

namespace tp::ops {
namespace {

// Above this many kernel positions the backward scatters instead of comparing positions.
constexpr int64_t kComparedTaps = 64;

Indexed pool_axis(Builder& b, Indexed x, const PoolWindow& w) {
  if (w.kernel > kUnrolledWindow)
    return reduce_larger(b, {stack_windows(b, x.value, w), stack_windows(b, x.index, w)},
                         w.axis + 1);
  Indexed best;
  for (int64_t k = 0; k < w.kernel; ++k) {
    Indexed tap{window_tap(b, x.value, w, k), window_tap(b, x.index, w, k)};
    best = best.value ? larger(b, best, tap) : tap;
  }
  return best;
}

void put_indexed(Lowering& l, std::vector<V>& out, Indexed r) {
  out.push_back(r.value);
  out.push_back(l.builder().convert(r.index, DType::kS64));
}

// The gradient as a sum over kernel positions: an output gives its gradient to the tap whose
// position it saved.
struct Backward {
  Builder& b;
  std::vector<PoolWindow> windows;
  IntList pitch;     // plane distance of one step along each axis
  V grad, relative;  // saved position minus the window's first

  V place(size_t axis, int64_t offset) {
    if (axis == windows.size()) {
      V hit = b.compare(relative, b.constant_int(offset, relative.type), hlo::Cmp::kEq);
      return b.select(hit, grad, b.zeros(grad.type));
    }
    const PoolWindow& w = windows[axis];
    std::vector<V> terms;
    IntList offsets;
    for (int64_t k = 0; k < w.kernel; ++k) {
      terms.push_back(place(axis + 1, offset + k * w.dilation * pitch[axis]));
      offsets.push_back(k * w.dilation - w.padding);
    }
    return spread(b, terms, offsets, w.axis, w.stride, w.in);
  }
};

V relative_positions(Builder& b, V index, const std::vector<PoolWindow>& windows,
                     const IntList& pitch) {
  V r = b.convert(index, DType::kS32);
  for (size_t i = 0; i < windows.size(); ++i) {
    V step = b.constant_int(windows[i].stride * pitch[i], r.type);
    V first = b.sub(b.mul(b.iota(r.type, windows[i].axis), step),
                    b.constant_int(windows[i].padding * pitch[i], r.type));
    r = b.sub(r, first);
  }
  return r;
}

}  // namespace

template <size_t n>
void max_pool_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  if (l.out().numel() == 0) return put_indexed(l, out, {b.zeros(l.out(0)), b.zeros(l.out(1))});
  std::vector<PoolWindow> windows = pool_windows(l, x.dims(), l.out().dims(), n);
  Indexed r = with_positions(b, x, n);
  r.value = pad_windows(b, r.value, b.min_value(ir::scalar_type(x.dtype())), windows);
  r.index = pad_windows(b, r.index, b.constant_int(-1, ir::scalar_type(r.index.dtype())), windows);
  for (size_t i = n; i-- > 0;) r = pool_axis(b, r, windows[i]);
  put_indexed(l, out, r);
}

template <size_t n>
void max_pool_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  Type x = l.type("self");
  V grad = l.in("grad_output");
  std::vector<PoolWindow> windows = pool_windows(l, x.dims(), grad.dims(), n);
  int64_t taps = 1, plane = 1;
  IntList pitch(n, 1);
  for (size_t i = n; i-- > 0;) {
    pitch[i] = plane;
    plane *= windows[i].in;
    taps *= windows[i].kernel;
  }
  bool empty = x.numel() == 0 || grad.type.numel() == 0;
  if (taps > kComparedTaps || plane >= int64_t{1} << 31 || empty)
    return indexed_backward_lower<n>(l, out);
  grad = b.convert(grad, ir::compute_dtype(grad.dtype()));
  V relative = relative_positions(b, l.in("indices"), windows, pitch);
  Backward backward{b, windows, pitch, grad, relative};
  out.push_back(b.convert(backward.place(0, 0), x.dtype()));
}

template <size_t n>
void indexed_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = l.in("grad_output");
  grad = b.convert(grad, ir::compute_dtype(grad.dtype()));
  V sum = put_in_planes(b, grad, l.in("indices"), l.out().dims(), n, Put::kAdd);
  out.push_back(b.convert(sum, l.out().dtype()));
}

template <size_t n>
void unpool_lower(Lowering& l, std::vector<V>& out) {
  out.push_back(
      put_in_planes(l.builder(), l.in("self"), l.in("indices"), l.out().dims(), n, Put::kSet));
}

template void max_pool_lower<2>(Lowering&, std::vector<V>&);
template void max_pool_lower<3>(Lowering&, std::vector<V>&);
template void max_pool_backward_lower<2>(Lowering&, std::vector<V>&);
template void max_pool_backward_lower<3>(Lowering&, std::vector<V>&);
template void indexed_backward_lower<2>(Lowering&, std::vector<V>&);
template void indexed_backward_lower<3>(Lowering&, std::vector<V>&);
template void unpool_lower<2>(Lowering&, std::vector<V>&);
template void unpool_lower<3>(Lowering&, std::vector<V>&);

}  // namespace tp::ops
