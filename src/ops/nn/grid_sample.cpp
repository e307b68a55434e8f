// Grid sampling: each output point reads taps along every axis (1 nearest, 2 linear, 4 cubic); a
// value is the sum over all combinations of taps, weights multiplied. Points are rows: x is [batch
// * positions, channels]. The gradient at the grid goes through the weights' derivatives, and
// through the padding and the scaling.
#include "ops/nn/grid_sample.h"

#include <algorithm>

#include "base/error.h"
#include "ops/core/eager_text.h"
#include "ops/index/indexing.h"

namespace tp::ops {
namespace {

using hlo::Cmp;

enum Mode : int64_t { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

// One tap along one axis, for all points: where it reads (a float that is whole), whether that is
// inside, its weight and the weight's slope in the position.
struct Tap {
  V at, inside, weight, slope;
};
struct Axis {
  std::vector<Tap> taps;
  V scale;  // of the position in the grid's coordinate
};

struct Spec {
  int64_t mode, padding;
  bool align;
};
Spec spec_of(const Args& a) {
  return {a.i("interpolation_mode"), a.i("padding_mode"), a.b("align_corners")};
}

// A position and its slope.
struct Moved {
  V at, slope;
};

Moved unnormalized(Builder& b, V grid, int64_t size, bool align) {
  auto n = static_cast<double>(size);
  V shifted = b.add(grid, 1.0);
  V at = align ? b.mul(b.div(shifted, 2.0), n - 1) : b.div(b.sub(b.mul(shifted, n), 1.0), 2.0);
  return {at, b.constant(align ? (n - 1) / 2 : n / 2, grid.type)};
}

Moved clipped(Builder& b, Moved p, int64_t size) {
  auto last = static_cast<double>(size - 1);
  V inner = b.and_(b.compare(p.at, 0.0, Cmp::kGt), b.compare(p.at, last, Cmp::kLt));
  V zero = b.zeros(p.at.type);
  V known = b.select(b.is_nan(p.at), zero, p.at);
  return {b.min(b.max(known, 0.0), last), b.select(inner, p.slope, zero)};
}

// Mirrored at low/2 and high/2 until inside, as eager folds.
Moved reflected(Builder& b, Moved p, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) return {b.zeros(p.at.type), b.zeros(p.at.type)};
  double low = static_cast<double>(twice_low) / 2,
         span = static_cast<double>(twice_high - twice_low) / 2;
  V away = b.sub(p.at, low), zero = b.zeros(away.type);
  V negative = b.compare(away, zero, Cmp::kLt);
  V distance = b.abs(away), flips = b.floor(b.div(distance, span));
  V extra = b.sub(distance, b.mul(flips, span));
  V half = b.mul(flips, 0.5), even = b.compare(b.floor(half), half, Cmp::kEq);
  V at = b.select(even, b.add(extra, low), b.sub(b.constant(span + low, extra.type), extra));
  V turned = b.xor_(negative, b.not_(even));
  return {at, b.select(turned, b.neg(p.slope), p.slope)};
}

Moved padded(Builder& b, Moved p, int64_t size, const Spec& s) {
  if (s.padding == kReflection)
    p = s.align ? reflected(b, p, 0, 2 * (size - 1)) : reflected(b, p, -1, 2 * size - 1);
  return s.padding == kZeros ? p : clipped(b, p, size);
}

Tap tap_at(Builder& b, V at, int64_t size, V weight, V slope) {
  V inside =
      b.and_(b.compare(at, 0.0, Cmp::kGe), b.compare(at, static_cast<double>(size - 1), Cmp::kLe));
  return {at, inside, weight, slope};
}

// c0 + c1 t + c2 t^2 + c3 t^3, and its derivative.
Moved cubic(Builder& b, V t, double c0, double c1, double c2, double c3) {
  V value = b.add(b.mul(b.add(b.mul(b.add(b.mul(t, c3), c2), t), c1), t), c0);
  V slope = b.add(b.mul(b.add(b.mul(t, 3 * c3), 2 * c2), t), c1);
  return {value, slope};
}

std::vector<Tap> cubic_taps(Builder& b, V at, int64_t size, const Spec& s) {
  V low = b.floor(at), t = b.sub(at, low);
  constexpr double a = -0.75;  // Keys' kernel, by powers of t for the four neighbours
  const Moved weights[] = {cubic(b, t, 0, a, -2 * a, a), cubic(b, t, 1, 0, -(a + 3), a + 2),
                           cubic(b, t, 0, -a, 2 * a + 3, -(a + 2)), cubic(b, t, 0, 0, a, -a)};
  std::vector<Tap> taps;
  for (int k = 0; k < 4; ++k) {
    Moved place = padded(b, {b.add(low, static_cast<double>(k - 1)), b.zeros(at.type)}, size, s);
    taps.push_back(tap_at(b, place.at, size, weights[k].at, weights[k].slope));
  }
  return taps;
}

Axis axis_of(Builder& b, V grid, int64_t size, const Spec& s) {
  Moved p = unnormalized(b, grid, size, s.align);
  if (s.mode == kBicubic) return {cubic_taps(b, p.at, size, s), p.slope};
  p = padded(b, p, size, s);
  V one = b.ones(grid.type), zero = b.zeros(grid.type);
  if (s.mode == kNearest)
    return {{tap_at(b, b.unary("stablehlo.round_nearest_even", p.at), size, one, zero)}, p.slope};
  V low = b.floor(p.at), part = b.sub(p.at, low);
  return {{tap_at(b, low, size, b.sub(one, part), b.neg(one)),
           tap_at(b, b.add(low, 1.0), size, part, one)},
          p.slope};
}

// One choice of a tap on every axis.
struct Corner {
  V row;                  // s64, of [batch * positions]; out of range where not inside
  V weight;               // 0 where not inside
  std::vector<V> slopes;  // of the weight, along each axis; 0 where not inside
};

struct Sampling {
  int64_t batch, channels, rows, points;  // rows, points: batch included
  IntList in, out;
  std::vector<Axis> axes;  // in the order of x's dims
  std::vector<Corner> corners;
};

V product(Builder& b, const std::vector<V>& v) {
  V p;
  for (V x : v) p = p ? b.mul(p, x) : x;
  return p;
}

Corner corner_of(Builder& b, const Sampling& s, const std::vector<const Tap*>& taps) {
  V row, inside;
  std::vector<V> weights;
  for (size_t d = 0; d < taps.size(); ++d) {
    V last = b.constant_int(s.in[d] - 1, taps[d]->at.type);
    V index = b.convert(b.min(b.max(taps[d]->at, 0.0), last), DType::kS64);
    row = row ? b.add(b.mul(row, b.constant_int(s.in[d], row.type)), index) : index;
    inside = inside ? b.and_(inside, taps[d]->inside) : taps[d]->inside;
    weights.push_back(taps[d]->weight);
  }
  int64_t per_item = s.rows / s.batch, each = s.points / s.batch;
  V item = b.reshape(b.iota(row.type.with(IntList{s.batch, each}), 0), row.dims());
  row = b.add(row, b.mul(item, b.constant_int(per_item, item.type)));
  V zero = b.zeros(weights[0].type);
  Corner c{b.select(inside, row, b.constant_int(s.rows, row.type)),
           b.select(inside, product(b, weights), zero),
           {}};
  for (size_t d = 0; d < taps.size(); ++d) {
    std::vector<V> sloped = weights;
    sloped[d] = taps[d]->slope;
    c.slopes.push_back(b.select(inside, product(b, sloped), zero));
  }
  return c;
}

void add_corners(Builder& b, Sampling& s, std::vector<const Tap*>& chosen) {
  size_t d = chosen.size();
  if (d == s.axes.size()) return s.corners.push_back(corner_of(b, s, chosen));
  for (const Tap& t : s.axes[d].taps) {
    chosen.push_back(&t);
    add_corners(b, s, chosen);
    chosen.pop_back();
  }
}

V computed(Lowering& l, std::string_view name) {
  V v = l.in(name);
  return l.builder().convert(v, ir::compute_dtype(v.dtype()));
}

Sampling sampling_of(Lowering& l, Type x, V grid) {
  Builder& b = l.builder();
  Sampling s{x.dim(0), x.dim(1), x.dim(0), 1, {}, {}, {}, {}};
  for (size_t i = 2; i < x.dims().size(); ++i) s.in.push_back(x.dim(i)), s.rows *= x.dim(i);
  int last = grid.rank() - 1;
  s.out.assign(grid.dims().begin() + 1, grid.dims().begin() + last);
  s.points = grid.type.numel() / grid.dims().back();
  auto dims = static_cast<int64_t>(s.in.size());
  for (int64_t d = 0; d < dims; ++d) {
    V coordinate = as_1d(b, b.slice_dim(grid, last, dims - 1 - d, dims - d));  // x comes first
    s.axes.push_back(axis_of(b, coordinate, s.in[static_cast<size_t>(d)], spec_of(l)));
  }
  std::vector<const Tap*> chosen;
  add_corners(b, s, chosen);
  return s;
}

// [N, C, ...] as rows [N * ..., C], and back.
V as_rows(Builder& b, V x, const Sampling& s) {
  int64_t each = x.type.numel() / s.batch / s.channels;
  V flat = b.reshape(x, IntList{s.batch, s.channels, each});
  return b.reshape(b.transpose(flat, IntList{0, 2, 1}), IntList{s.batch * each, s.channels});
}
V from_rows(Builder& b, V rows, const Sampling& s, Ints dims) {
  V split = b.reshape(rows, IntList{s.batch, rows.dim(0) / s.batch, s.channels});
  return b.reshape(b.transpose(split, IntList{0, 2, 1}), dims);
}

V over_channels(Builder& b, V v, V rows) { return b.broadcast(v, rows.type, IntList{0}); }

// What a corner sees; a NaN or infinity outside stays outside.
V read_corner(Builder& b, V rows, const Corner& c, const Sampling& s) {
  V last = b.constant_int(s.rows - 1, c.row.type);
  V seen = take_along_list(b, rows, b.min(c.row, last), 0);
  V inside =
      b.broadcast(b.compare(c.row, last, Cmp::kLe), seen.type.with(DType::kPred), IntList{0});
  return b.select(inside, seen, b.zeros(seen.type));
}

void check_grid_sample(Type x, Type grid, int64_t mode) {
  if (x.rank() < 3 || grid.rank() < 2 || x.dim(0) != grid.dim(0))
    fail(Code::kRuntime,
         cat("grid_sampler(): expected grid and input to have same batch size, but got input with "
             "sizes ",
             size_text(x.dims()), " and grid with sizes ", size_text(grid.dims())));
  if (grid.dims().back() != x.rank() - 2)
    fail(Code::kRuntime,
         cat("grid_sampler(): expected grid to have size ", x.rank() - 2,
             " in last dimension, but got grid with sizes ", size_text(grid.dims())));
  for (size_t i = 2; i < x.dims().size(); ++i)
    if (x.dim(i) == 0)
      fail(Code::kRuntime,
           cat("grid_sampler(): expected input to have non-empty spatial dimensions, but input "
               "has sizes ",
               size_text(x.dims()), " with dimension ", i, " being empty"));
  if (x.rank() == 5 && mode == kBicubic)
    fail(Code::kRuntime, "grid_sampler(): bicubic interpolation only supports 4D input");
  if (x.dtype() != grid.dtype())
    fail(Code::kRuntime, expected_scalar_type(x.dtype(), grid.dtype()));
  if (!ir::is_float(x.dtype()))
    fail(Code::kNotImplemented,
         not_implemented_for(
             x.rank() == 4 ? "grid_sampler_2d_cpu_kernel_impl" : "grid_sampler3d_cpu", x.dtype()));
}

}  // namespace

void grid_sample_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("input"), grid = a.type("grid");
  check_grid_sample(x, grid, a.i("interpolation_mode"));
  IntList dims(grid.dims().begin(), grid.dims().end() - 1);
  dims.insert(dims.begin() + 1, x.dim(1));
  out.push_back(x.with(dims));
}

void grid_sample_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  V x = computed(l, "input");
  Sampling s = sampling_of(l, x.type, computed(l, "grid"));
  V rows = as_rows(b, x, s), sum;
  for (const Corner& c : s.corners) {
    V seen = read_corner(b, rows, c, s), term = b.mul(seen, over_channels(b, c.weight, seen));
    sum = sum ? b.add(sum, term) : term;
  }
  out.push_back(b.convert(from_rows(b, sum, s, l.out().dims()), l.out().dtype()));
}

void grid_sample_backward_type(const Args& a, std::vector<Type>& out) {
  Type x = a.type("input"), grid = a.type("grid");
  check_grid_sample(x, grid, a.i("interpolation_mode"));
  out.push_back(a.ints("output_mask")[0] ? x : Type());
  out.push_back(grid);  // eager makes the grid's gradient in any case
}

namespace {

V input_gradient(Builder& b, const Sampling& s, V grad, Ints dims) {
  V sum = b.zeros(grad.type.with(IntList{s.rows, s.channels}));
  for (const Corner& c : s.corners)
    sum = scatter_list(b, sum, c.row, b.mul(grad, over_channels(b, c.weight, grad)), 0,
                       Combine::kAdd);
  return from_rows(b, sum, s, dims);
}

V grid_gradient(Builder& b, const Sampling& s, V rows, V grad, Ints dims) {
  std::vector<V> sums(s.axes.size());
  const IntList channel{1};
  for (const Corner& c : s.corners) {
    V dot = b.reduce(b.mul(read_corner(b, rows, c, s), grad), channel, Builder::Red::kSum);
    for (size_t d = 0; d < sums.size(); ++d) {
      V term = b.mul(dot, c.slopes[d]);
      sums[d] = sums[d] ? b.add(sums[d], term) : term;
    }
  }
  std::vector<V> columns;
  for (size_t d = sums.size(); d-- > 0;)
    columns.push_back(b.reshape(b.mul(sums[d], s.axes[d].scale), IntList{s.points, 1}));
  return b.reshape(b.concat(columns, 1), dims);
}

}  // namespace

void grid_sample_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad_output"), x = computed(l, "input"), grid = computed(l, "grid");
  if (grad.type.numel() == 0) {
    out.push_back(l.out(0) ? b.zeros(l.out(0)) : V());
    return out.push_back(b.zeros(l.out(1)));
  }
  Sampling s = sampling_of(l, x.type, grid);
  V rows = as_rows(b, grad, s);
  V gx = l.out(0) ? b.convert(input_gradient(b, s, rows, x.dims()), l.out(0).dtype()) : V();
  V gg = spec_of(l).mode == kNearest ? b.zeros(grid.type)
                                     : grid_gradient(b, s, as_rows(b, x, s), rows, grid.dims());
  out.push_back(gx);
  out.push_back(b.convert(gg, l.out(1).dtype()));
}

}  // namespace tp::ops
