// Windows, arg-max and plane scatters (pool.h), and the table of all poolings.
#include "ops/nn/pool.h"

#include <algorithm>
#include <limits>

#include "ops/core/families.h"
#include "ops/host/choice.h"
#include "ops/reduce/axis.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

int64_t volume(Ints dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

int64_t entry(const IntList& v, size_t i) { return v.size() == 1 ? v[0] : v[i]; }

// Does y replace x? Both orders are possible, so ties and NaNs go by position.
V replaces(Builder& b, Indexed x, Indexed y) {
  V zero = b.zeros(x.index.type);
  V before = b.compare(y.index, x.index, Cmp::kLt);
  V better = b.or_(b.compare(y.value, x.value, Cmp::kGt),
                   b.and_(b.compare(y.value, x.value, Cmp::kEq), before));
  if (ir::is_float(x.value.dtype())) {
    V nx = b.is_nan(x.value), ny = b.is_nan(y.value);
    better = b.or_(b.and_(better, b.not_(nx)), b.and_(ny, b.or_(b.not_(nx), b.not_(before))));
  }
  V real_x = b.compare(x.index, zero, Cmp::kGe), real_y = b.compare(y.index, zero, Cmp::kGe);
  return b.and_(real_y, b.or_(b.not_(real_x), better));
}

}  // namespace

std::vector<PoolWindow> pool_windows(const Args& a, Ints in, Ints out, size_t spatial) {
  IntList kernel = a.ints("kernel_size"), stride = a.ints_or("stride", {});
  IntList padding = a.ints_or("padding", {0}), dilation = a.ints_or("dilation", {1});
  if (stride.empty()) stride = kernel;
  std::vector<PoolWindow> w;
  for (size_t i = 0; i < spatial; ++i) {
    size_t axis = in.size() - spatial + i;
    w.push_back({static_cast<int64_t>(axis), in[axis], out[axis], entry(kernel, i),
                 entry(stride, i), entry(padding, i), entry(dilation, i)});
  }
  return w;
}

V pad_windows(Builder& b, V x, V value, std::span<const PoolWindow> w) {
  IntList low(x.dims().size(), 0), high = low, interior = low;
  for (const PoolWindow& d : w) {
    int64_t reach = d.start(d.out - 1) + d.dilation * (d.kernel - 1) + 1;
    low[static_cast<size_t>(d.axis)] = d.padding;
    high[static_cast<size_t>(d.axis)] = std::max<int64_t>(reach - d.in, 0);
  }
  return b.pad(x, value, low, high, interior);
}

V window_tap(Builder& b, V x, const PoolWindow& w, int64_t k) {
  int64_t first = k * w.dilation;
  return b.slice_dim(x, w.axis, first, first + (w.out - 1) * w.stride + 1, w.stride);
}

V stack_windows(Builder& b, V x, const PoolWindow& w) {
  IntList positions;
  for (int64_t o = 0; o < w.out; ++o)
    for (int64_t k = 0; k < w.kernel; ++k) positions.push_back(o * w.stride + k * w.dilation);
  return take_stacked(b, x, w.axis, positions, w.out);
}

V take_stacked(Builder& b, V x, int64_t axis, Ints positions, int64_t out) {
  IntList split = with_dim(x.dims(), axis, out);
  split.insert(split.begin() + axis + 1,
               static_cast<int64_t>(positions.size()) / std::max<int64_t>(out, 1));
  return b.reshape(take(b, x, axis, positions), split);
}

Indexed with_positions(Builder& b, V x, size_t spatial) {
  Ints plane = x.dims().last(spatial);
  int64_t n = volume(plane);
  DType t = n > std::numeric_limits<int32_t>::max() ? DType::kS64 : DType::kS32;
  V flat = b.reshape(b.iota(ir::make_type(t, {&n, 1}), 0), plane);
  return {x, b.broadcast_to(flat, x.dims())};
}

Indexed larger(Builder& b, Indexed x, Indexed y) {
  V pick = b.or_(b.compare(y.value, x.value, Cmp::kGt),
                 b.compare(x.index, b.zeros(x.index.type), Cmp::kLt));
  if (ir::is_float(x.value.dtype())) pick = b.or_(pick, b.is_nan(y.value));
  // The value does not come out of `pick`, so that nobody computes indices that nobody wants.
  return {b.max(x.value, y.value), b.select(pick, y.index, x.index)};
}

Indexed reduce_larger(Builder& b, Indexed x, int64_t axis) {
  const V values[] = {x.value, x.index};
  const V init[] = {b.min_value(ir::scalar_type(x.value.dtype())),
                    b.constant_int(-1, ir::scalar_type(x.index.dtype()))};
  std::vector<V> r = b.reduce_many(values, init, {&axis, 1}, [](Builder& in, std::span<const V> v) {
    Indexed p{v[0], v[1]}, q{v[2], v[3]};
    V pick = replaces(in, p, q);
    return std::vector<V>{in.select(pick, q.value, p.value), in.select(pick, q.index, p.index)};
  });
  return {r[0], r[1]};
}

V put_in_planes(Builder& b, V updates, V index, Ints dims, size_t spatial, Put how) {
  int64_t total = volume(dims), plane = volume(dims.last(spatial)), n = updates.type.numel();
  Type result = updates.type.with(dims);
  if (total == 0 || n == 0) return b.zeros(result);
  int64_t planes = total / plane, each = n / planes;
  const IntList rows{planes, each};
  V at = b.reshape(b.convert(index, DType::kS64), rows), zero = b.zeros(at.type);
  V inside =
      b.and_(b.compare(at, zero, Cmp::kGe), b.compare(at, static_cast<double>(plane), Cmp::kLt));
  V base = b.mul(b.iota(at.type, 0), b.constant_int(plane, at.type));
  V flat =
      b.select(inside, b.add(at, base), b.constant_int(total, at.type));  // out of range: dropped
  hlo::ScatterConfig c;
  c.inserted_window_dims = {0};
  c.scatter_dims_to_operand = {0};
  c.index_vector_dim = 1;
  V filled = b.scatter(b.zeros(result.with(IntList{total})), b.reshape(flat, IntList{n}),
                       b.reshape(updates, IntList{n}), c, [how](Builder& in, std::span<const V> v) {
                         return std::vector<V>{how == Put::kAdd ? in.add(v[0], v[1]) : v[1]};
                       });
  return b.reshape(filled, dims);
}

Family pool() {
  static const Row kRows[] = {
      {.name = "aten::max_pool2d_with_indices",
       .lower = max_pool_lower<2>,
       .kernels = {{"max_pool2d", takes::kNumbers}}},
      {.name = "aten::max_pool2d_with_indices_backward",
       .lower = max_pool_backward_lower<2>,
       .kernels = {{"max_pool2d_backward", takes::kFloats, "grad_output"}},
       .faster_on_host = faster_on_host::max_pool_backward},
      {.name = "aten::max_pool3d_with_indices",
       .type = max_pool3d_type,
       .lower = max_pool_lower<3>,
       .kernels = {{"max_pool3d", takes::kNumbers}}},
      {.name = "aten::max_pool3d_with_indices_backward",
       .type = max_pool3d_backward_type,
       .lower = max_pool_backward_lower<3>,
       .kernels = {{"max_pool3d_backward", takes::kFloats, "grad_output"}}},
      {.name = "aten::avg_pool2d",
       .lower = avg_pool_lower<2>,
       .general = "divisor_override",
       .kernels = {{"avg_pool2d", takes::kFloats | takes::kLongs}}},
      {.name = "aten::avg_pool2d_backward",
       .lower = avg_pool_backward_lower<2>,
       .general = "divisor_override",
       .kernels = {{"avg_pool2d_backward", takes::kFloats | takes::kLongs}}},
      {.name = "aten::avg_pool3d",
       .lower = avg_pool_lower<3>,
       .general = "divisor_override",
       .kernels = {{"avg_pool3d_out_frame", takes::kWide | takes::kLongs}}},
      {.name = "aten::avg_pool3d_backward",
       .lower = avg_pool_backward_lower<3>,
       .general = "divisor_override",
       .kernels = {{"avg_pool3d_backward_out_frame", takes::kWide | takes::kLongs}}},
      {.name = "aten::_adaptive_avg_pool2d",
       .type = adaptive_avg_type<2>,
       .lower = adaptive_avg_lower<2>,
       .layout = Layout::kSuggested},
      {.name = "aten::_adaptive_avg_pool2d_backward",
       .type = adaptive_avg_backward_type<2>,
       .lower = adaptive_avg_backward_lower<2>},
      {.name = "aten::_adaptive_avg_pool3d",
       .type = adaptive_avg_type<3>,
       .lower = adaptive_avg_lower<3>},
      {.name = "aten::_adaptive_avg_pool3d_backward",
       .type = adaptive_avg_backward_type<3>,
       .lower = adaptive_avg_backward_lower<3>},
      {.name = "aten::adaptive_max_pool2d",
       .lower = adaptive_max_lower<2>,
       .kernels = {{"adaptive_max_pool2d", takes::kFloats}}},
      {.name = "aten::adaptive_max_pool2d_backward",
       .lower = indexed_backward_lower<2>,
       .kernels = {{"adaptive_max_pool2d_backward", takes::kFloats, "grad_output"}}},
      {.name = "aten::adaptive_max_pool3d",
       .lower = adaptive_max_lower<3>,
       .kernels = {{"adaptive_max_pool3d_cpu", takes::kFloats}}},
      {.name = "aten::adaptive_max_pool3d_backward",
       .lower = indexed_backward_lower<3>,
       .kernels = {{"adaptive_max_pool3d_backward", takes::kFloats, "grad_output"}}},
      {.name = "aten::fractional_max_pool2d",
       .lower = fractional_lower<2>,
       .kernels = {{"fractional_max_pool2d_out_frame", takes::kFloats, "self"}}},
      {.name = "aten::fractional_max_pool3d",
       .lower = fractional_lower<3>,
       .kernels = {{"fractional_max_pool3d_out_frame", takes::kFloats, "self"}}},
      {.name = "aten::fractional_max_pool2d_backward", .lower = indexed_backward_lower<2>},
      {.name = "aten::fractional_max_pool3d_backward",
       .type = fractional3d_backward_type,
       .lower = indexed_backward_lower<3>},
      {.name = "aten::max_unpool2d",
       .type = unpool2d_type,
       .lower = unpool_lower<2>,
       .kernels = {{"max_unpool2d", takes::kFloats, "self"}}},
      {.name = "aten::max_unpool3d",
       .type = unpool3d_type,
       .lower = unpool_lower<3>,
       .kernels = {{"max_unpool3d", takes::kFloats, "self"}}},
  };
  return kRows;
}

}  // namespace tp::ops
