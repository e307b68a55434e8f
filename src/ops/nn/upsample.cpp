// Resizing: nearest, linear, cubic and the antialiased filters, 1-3 spatial dims. Each axis is a
// table of taps made here in eager's own arithmetic (float, double for double); the backward is the
// table's transpose. Pure functions; any thread.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "ops/core/families.h"
#include "ops/index/indexing.h"
#include "ops/nn/grid_sample.h"
#include "ops/reduce/axis.h"

namespace tp::ops {
namespace {

enum class Filter { kNearest, kNearestExact, kLinear, kCubic, kLinearAa, kCubicAa, kLanczosAa };

struct Resize {
  int64_t axis, in, out;
  bool align_corners;
  double scale;  // the user's; 0: none given
  V input;       // the scale where it is an input of the program, f64
  bool exact_sizes =
      false;  // this kernel of eager's goes by the sizes where they are equal or doubled
  bool by_sizes() const { return exact_sizes && (out == in || out == 2 * in); }  // nearest
};

// Distance between neighbouring targets, in sources.
template <class T>
T step_of(const Resize& r) {
  if (r.align_corners)
    return r.out > 1 ? static_cast<T>(r.in - 1) / static_cast<T>(r.out - 1) : T(0);
  if (r.scale > 0) return static_cast<T>(1.0 / r.scale);
  return static_cast<T>(r.in) / static_cast<T>(r.out);
}

template <class T>
T position_of(const Resize& r, T step, int64_t i) {
  return r.align_corners ? step * static_cast<T>(i) : step * (static_cast<T>(i) + T(0.5)) - T(0.5);
}

template <class T>
int64_t nearest(const Resize& r, Filter f, int64_t i) {
  if (r.by_sizes()) return i * r.in / r.out;
  T step = step_of<T>(r);
  T at = f == Filter::kNearest ? step * static_cast<T>(i) : step * (static_cast<T>(i) + T(0.5));
  return std::min(static_cast<int64_t>(std::floor(static_cast<float>(at))), r.in - 1);
}

template <class T>
std::vector<Tap> linear(const Resize& r, int64_t i) {
  if (r.in == r.out) return {{i, 1.0}};
  T at = std::max(position_of<T>(r, step_of<T>(r), i), T(0));
  int64_t low = std::min(static_cast<int64_t>(at), r.in - 1), high = std::min(low + 1, r.in - 1);
  T part = std::clamp(at - static_cast<T>(low), T(0), T(1));
  return {{low, static_cast<double>(T(1) - part)}, {high, static_cast<double>(part)}};
}

// Keys' kernel with a = -0.75 (-0.5 where antialiased): inside 1 and between 1 and 2.
template <class T>
T cubic_near(T x, T a) {
  return ((a + T(2)) * x - (a + T(3))) * x * x + T(1);
}
template <class T>
T cubic_far(T x, T a) {
  return ((a * x - T(5) * a) * x + T(8) * a) * x - T(4) * a;
}

template <class T>
std::vector<Tap> cubic(const Resize& r, int64_t i) {
  T at = position_of<T>(r, step_of<T>(r), i);
  int64_t low = std::min(static_cast<int64_t>(std::floor(at)), r.in - 1);
  T t = std::clamp(at - static_cast<T>(low), T(0), T(1)), a = T(-0.75);
  const T weights[] = {cubic_far(t + T(1), a), cubic_near(t, a), cubic_near(T(1) - t, a),
                       cubic_far(T(2) - t, a)};
  std::vector<Tap> taps;
  for (int64_t k = 0; k < 4; ++k)
    taps.push_back(
        {std::clamp<int64_t>(low - 1 + k, 0, r.in - 1), static_cast<double>(weights[k])});
  return taps;
}

template <class T>
T antialias(Filter f, T x) {
  x = std::abs(x);
  if (f == Filter::kLinearAa) return x < T(1) ? T(1) - x : T(0);
  if (f == Filter::kCubicAa)
    return x < T(1) ? cubic_near(x, T(-0.5)) : x < T(2) ? cubic_far(x, T(-0.5)) : T(0);
  auto sinc = [](T v) {
    T p = static_cast<T>(std::numbers::pi) * v;
    return v == T(0) ? T(1) : std::sin(p) / p;
  };
  return x < T(3) ? sinc(x) * sinc(x / T(3)) : T(0);
}

// The filter widens with the step when shrinking; weights are normalised.
template <class T>
std::vector<Tap> antialiased(const Resize& r, Filter f, int64_t i) {
  T step = step_of<T>(r), reach = f == Filter::kLinearAa  ? T(1)
                                  : f == Filter::kCubicAa ? T(2)
                                                          : T(3);
  T support = step >= T(1) ? reach * step : reach, shrink = step >= T(1) ? T(1) / step : T(1);
  T center = step * (static_cast<T>(i) + T(0.5));
  int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + T(0.5)), 0);
  int64_t last = std::min<int64_t>(static_cast<int64_t>(center + support + T(0.5)), r.in);
  std::vector<T> weights;
  T total = 0;
  for (int64_t k = first; k < last; ++k) {
    weights.push_back(antialias(f, (static_cast<T>(k) - center + T(0.5)) * shrink));
    total += weights.back();
  }
  std::vector<Tap> taps;
  for (size_t k = 0; k < weights.size(); ++k)
    taps.push_back({first + static_cast<int64_t>(k),
                    total == T(0) ? 0.0 : static_cast<double>(weights[k] / total)});
  return taps;
}

template <class T>
TapTable taps_in(const Resize& r, Filter f) {
  TapTable taps;
  for (int64_t i = 0; i < r.out; ++i) {
    switch (f) {
      case Filter::kNearest:
      case Filter::kNearestExact:
        taps.push_back({{nearest<T>(r, f, i), 1.0}});
        break;
      case Filter::kLinear:
        taps.push_back(linear<T>(r, i));
        break;
      case Filter::kCubic:
        taps.push_back(r.exact_sizes ? std::vector<Tap>{{i, 1.0}} : cubic<T>(r, i));
        break;
      default:
        taps.push_back(antialiased<T>(r, f, i));
    }
  }
  return taps;
}

TapTable taps_of(const Resize& r, Filter f, DType t) {
  return t == DType::kF64 ? taps_in<double>(r, f) : taps_in<float>(r, f);
}

std::vector<Resize> resizes(const Lowering& a, Ints in, Ints out, size_t spatial) {
  static constexpr std::string_view kScales[] = {"scales_d", "scales_h", "scales_w"};
  std::vector<Resize> r;
  for (size_t i = 0; i < spatial; ++i) {
    size_t axis = in.size() - spatial + i;
    std::string_view name = spatial == 1 ? "scales" : kScales[3 - spatial + i];
    r.push_back({static_cast<int64_t>(axis), in[axis], out[axis], a.b_or("align_corners", false),
                 a.f_or(name, 0.0), a.input(name), false});
  }
  return r;
}

// Eager's kernels differ in when they look at the sizes before the scale; it shows only where a
// scale is given that does not lead to the sizes.
void mark_exact(std::vector<Resize>& axes, Filter f, bool backward) {
  bool same = std::ranges::all_of(axes, [](const Resize& r) { return r.in == r.out; });
  for (Resize& r : axes) {
    if (f == Filter::kNearest) r.exact_sizes = backward || axes.size() == 2;
    if (f == Filter::kCubic) r.exact_sizes = backward && same;
    if (f > Filter::kCubic && !backward && r.in == r.out) r.scale = 1;
  }
}

// --- bytes: eager resizes them in whole numbers, an axis at a time ------------------------------

struct ByteTaps {
  TapTable taps;       // weights times 2^digits, whole
  double largest = 0;  // of the weights
  int digits = 0;
};

// Without antialiasing: a linear or cubic kernel at its sources. Beyond the borders they are the
// border's own pixel, whose weights add up before they are rounded.
std::vector<Tap> byte_kernel(const Resize& r, Filter f, int64_t i, double* largest) {
  double at = position_of<double>(r, step_of<double>(r), i);
  if (f == Filter::kLinear) at = std::max(at, 0.0);
  auto whole = static_cast<int64_t>(std::floor(static_cast<float>(at)));
  int64_t near = std::min(whole, r.in - 1), reach = f == Filter::kLinear ? 1 : 2;
  double part = std::clamp(at - static_cast<double>(near), 0.0, 1.0);
  std::vector<Tap> taps;
  for (int64_t j = 1 - reach; j <= reach; ++j) {
    double x = std::abs(static_cast<double>(j) - part);
    double w = f == Filter::kLinear ? std::max(1 - x, 0.0)
               : x < 1              ? cubic_near(x, -0.75)
               : x < 2              ? cubic_far(x, -0.75)
                                    : 0.0;
    int64_t source = std::clamp<int64_t>(near + j, 0, r.in - 1);
    if (taps.empty() || taps.back().source != source) taps.push_back({source, 0});
    taps.back().weight += w;
    *largest = std::max(*largest, taps.back().weight);
  }
  return taps;
}

// 16 bits for a weight: as many digits behind the point as the largest one leaves.
ByteTaps byte_taps(const Resize& r, Filter f) {
  ByteTaps b;
  for (int64_t i = 0; i < r.out; ++i) {
    b.taps.push_back(f > Filter::kCubic ? antialiased<double>(r, f, i)
                                        : byte_kernel(r, f, i, &b.largest));
    for (const Tap& t : b.taps.back()) b.largest = std::max(b.largest, t.weight);
  }
  while (b.digits < 22 && 0.5 + std::ldexp(b.largest, b.digits + 1) < 32768) ++b.digits;
  for (std::vector<Tap>& taps : b.taps)
    for (Tap& t : taps) t.weight = std::round(std::ldexp(t.weight, b.digits));
  return b;
}

V resize_bytes(Builder& b, V x, const std::vector<Resize>& axes, Filter f) {
  x = b.convert(x, DType::kS32);
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i].in == axes[i].out) continue;
    ByteTaps t = byte_taps(axes[i], f);
    V sum = b.add(apply_taps(b, x, axes[i].axis, t.taps), std::ldexp(1.0, t.digits - 1));
    V digits = b.constant_int(t.digits, sum.type);
    x = b.binary("stablehlo.shift_right_arithmetic", sum, digits);
    x = b.min(b.max(x, 0.0), 255.0);
  }
  return x;
}

// --- a scale that is an input of the program: its taps are made there ---------------------------

// Does the axis go by its scale, which is an input?
bool is_scaled(const Resize& r, Filter f) {
  if (!r.input || r.align_corners) return false;
  if (f == Filter::kLinear) return r.in != r.out;
  if (f == Filter::kCubic) return !r.exact_sizes;
  return !r.by_sizes();
}

// The k-th taps of all positions. A single tap has no weight.
struct ScaledTaps {
  std::vector<V> sources;  // s64 [out]
  std::vector<V> weights;  // [out], float or double
};

// The tables of taps_in(), as ops.
class Scaled {
 public:
  Scaled(Builder& b, const Resize& r, DType t)
      : b(b), r(r), list(ir::make_type(t == DType::kF64 ? t : DType::kF32, IntList{r.out})) {}

  ScaledTaps taps(Filter f) const {
    V place = b.iota(list, 0), middle = b.add(place, 0.5);
    if (f == Filter::kNearest) return {{source(b.mul(step(), place))}, {}};
    if (f == Filter::kNearestExact) return {{source(b.mul(step(), middle))}, {}};
    V at = b.sub(b.mul(step(), middle), 0.5);
    return f == Filter::kLinear ? linear(b.max(at, 0.0)) : cubic(at);
  }

 private:
  V step() const {
    V wide = b.div(b.ones(r.input.type), r.input);
    V by_sizes = b.constant(static_cast<double>(r.in) / static_cast<double>(r.out), wide.type);
    V s = b.select(b.compare(r.input, 0.0, hlo::Cmp::kGt), wide, by_sizes);
    return b.broadcast_to(b.convert(s, list.dtype()), list.dims());
  }
  V whole(V at) const { return b.convert(b.floor(at), DType::kS64); }
  V inside(V i) const { return b.min(b.max(i, 0.0), static_cast<double>(r.in - 1)); }
  V source(V at) const { return inside(whole(b.convert(at, DType::kF32))); }
  V clamped(V part) const { return b.min(b.max(part, 0.0), 1.0); }

  ScaledTaps linear(V at) const {
    V low = inside(whole(at)), part = clamped(b.sub(at, b.convert(low, list.dtype())));
    return {{low, inside(b.add(low, 1.0))}, {b.sub(b.ones(list), part), part}};
  }
  // ((top x + second) x + third) x + last.
  V polynomial(V x, double top, double second, double third, double last) const {
    V v = b.add(b.mul(x, top), second);
    return b.add(b.mul(b.add(b.mul(v, x), third), x), last);
  }
  ScaledTaps cubic(V at) const {
    constexpr double a = -0.75;
    auto near = [&](V x) { return polynomial(x, a + 2, -(a + 3), 0, 1); };
    auto far = [&](V x) { return polynomial(x, a, -5 * a, 8 * a, -4 * a); };
    V low = b.min(whole(at), static_cast<double>(r.in - 1));
    V t = clamped(b.sub(at, b.convert(low, list.dtype()))), rest = b.sub(b.ones(list), t);
    ScaledTaps taps{{}, {far(b.add(t, 1.0)), near(t), near(rest), far(b.add(rest, 1.0))}};
    for (int k = -1; k < 3; ++k) taps.sources.push_back(inside(b.add(low, k)));
    return taps;
  }

  Builder& b;
  const Resize& r;
  Type list;
};

V weighted(Builder& b, V x, const ScaledTaps& taps, size_t k, int64_t axis) {
  return taps.weights.empty() ? x : b.mul(x, stretch(b, taps.weights[k], x, {&axis, 1}));
}

V resized(Builder& b, V x, const Resize& r, Filter f) {
  if (!is_scaled(r, f)) return apply_taps(b, x, r.axis, taps_of(r, f, x.dtype()));
  ScaledTaps taps = Scaled(b, r, x.dtype()).taps(f);
  V sum;
  for (size_t k = 0; k < taps.sources.size(); ++k) {
    V tap = weighted(b, take_along_list(b, x, taps.sources[k], r.axis), taps, k, r.axis);
    sum = sum ? b.add(sum, tap) : tap;
  }
  return sum;
}

V resized_backward(Builder& b, V grad, const Resize& r, Filter f) {
  if (!is_scaled(r, f))
    return apply_taps(b, grad, r.axis, transpose_taps(taps_of(r, f, grad.dtype()), r.in));
  ScaledTaps taps = Scaled(b, r, grad.dtype()).taps(f);
  V sum = b.zeros(grad.type.with(with_dim(grad.dims(), r.axis, r.in)));
  for (size_t k = 0; k < taps.sources.size(); ++k)
    sum = scatter_list(b, sum, taps.sources[k], weighted(b, grad, taps, k, r.axis), r.axis,
                       Combine::kAdd);
  return sum;
}

bool is_nearest(Filter f) { return f == Filter::kNearest || f == Filter::kNearestExact; }

template <Filter f, size_t n>
void upsample_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  std::vector<Resize> axes = resizes(l, x.dims(), l.out().dims(), n);
  mark_exact(axes, f, false);
  if (!is_nearest(f) && ir::is_int(x.dtype()))
    return out.push_back(b.convert(resize_bytes(b, x, axes, f), l.out().dtype()));
  if (!is_nearest(f)) x = b.convert(x, ir::compute_dtype(x.dtype()));
  for (size_t i = n; i-- > 0;) x = resized(b, x, axes[i], f);
  out.push_back(b.convert(x, l.out().dtype()));
}

template <Filter f, size_t n>
void upsample_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = l.in("grad_output");
  if (l.out().numel() == 0 || grad.type.numel() == 0) return out.push_back(b.zeros(l.out()));
  grad = b.convert(grad, ir::compute_dtype(grad.dtype()));
  std::vector<Resize> axes = resizes(l, l.out().dims(), grad.dims(), n);
  mark_exact(axes, f, true);
  for (const Resize& r : axes) grad = resized_backward(b, grad, r, f);
  out.push_back(b.convert(grad, l.out().dtype()));
}

constexpr const char* kScales = "scales scales_d scales_h scales_w";

// Bytes have whole weights, whose digits depend on the scale: it stays a constant.
void split_scales(const Args& a, std::vector<uint64_t>& structure, std::vector<Number>& values) {
  bool bytes = ir::is_int(a.type("self").dtype());
  for (const char* name : {"scales_h", "scales_w"}) {
    if (!a.has(name)) continue;
    auto bits = std::bit_cast<int64_t>(a.f(name));
    if (bytes)
      structure.push_back(static_cast<uint64_t>(bits));
    else
      values.push_back({true, bits});
  }
}

}  // namespace

Family upsample() {
  using enum Filter;
  static const Row kRows[] = {
      {.name = "aten::upsample_nearest1d",
       .lower = upsample_lower<kNearest, 1>,
       .general = kScales,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::upsample_nearest2d",
       .lower = upsample_lower<kNearest, 2>,
       .general = kScales,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::upsample_nearest3d",
       .lower = upsample_lower<kNearest, 3>,
       .general = kScales,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::_upsample_nearest_exact1d",
       .lower = upsample_lower<kNearestExact, 1>,
       .general = kScales,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::_upsample_nearest_exact2d",
       .lower = upsample_lower<kNearestExact, 2>,
       .general = kScales,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::_upsample_nearest_exact3d",
       .lower = upsample_lower<kNearestExact, 3>,
       .general = kScales,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::upsample_linear1d",
       .lower = upsample_lower<kLinear, 1>,
       .general = kScales,
       .kernels = {{"compute_indices_weights_linear", takes::kFloats}}},
      {.name = "aten::upsample_bilinear2d",
       .lower = upsample_lower<kLinear, 2>,
       .general = kScales,
       .split = split_scales,
       .kernels = {{"compute_indices_weights_linear", takes::kFloats | takes::kBytes}}},
      {.name = "aten::upsample_trilinear3d",
       .lower = upsample_lower<kLinear, 3>,
       .general = kScales,
       .kernels = {{"compute_indices_weights_linear", takes::kFloats}}},
      {.name = "aten::upsample_bicubic2d",
       .lower = upsample_lower<kCubic, 2>,
       .general = kScales,
       .split = split_scales,
       .kernels = {{"compute_indices_weights_cubic", takes::kFloats | takes::kBytes}}},
      {.name = "aten::_upsample_bilinear2d_aa",
       .lower = upsample_lower<kLinearAa, 2>,
       .kernels = {{"compute_index_ranges_weights", takes::kWide | takes::kBytes}}},
      {.name = "aten::_upsample_bicubic2d_aa",
       .lower = upsample_lower<kCubicAa, 2>,
       .kernels = {{"compute_index_ranges_weights", takes::kWide | takes::kBytes}}},
      {.name = "aten::_upsample_lanczos2d_aa",
       .lower = upsample_lower<kLanczosAa, 2>,
       .kernels = {{"compute_index_ranges_weights", takes::kWide | takes::kBytes}}},
      {.name = "aten::upsample_nearest1d_backward",
       .lower = upsample_backward_lower<kNearest, 1>,
       .general = kScales},
      {.name = "aten::upsample_nearest2d_backward",
       .lower = upsample_backward_lower<kNearest, 2>,
       .general = kScales},
      {.name = "aten::upsample_nearest3d_backward",
       .lower = upsample_backward_lower<kNearest, 3>,
       .general = kScales},
      {.name = "aten::_upsample_nearest_exact1d_backward",
       .lower = upsample_backward_lower<kNearestExact, 1>,
       .general = kScales},
      {.name = "aten::_upsample_nearest_exact2d_backward",
       .lower = upsample_backward_lower<kNearestExact, 2>,
       .general = kScales},
      {.name = "aten::_upsample_nearest_exact3d_backward",
       .lower = upsample_backward_lower<kNearestExact, 3>,
       .general = kScales},
      {.name = "aten::upsample_linear1d_backward",
       .lower = upsample_backward_lower<kLinear, 1>,
       .general = kScales},
      {.name = "aten::upsample_bilinear2d_backward",
       .lower = upsample_backward_lower<kLinear, 2>,
       .general = kScales},
      {.name = "aten::upsample_trilinear3d_backward",
       .lower = upsample_backward_lower<kLinear, 3>,
       .general = kScales},
      {.name = "aten::upsample_bicubic2d_backward",
       .lower = upsample_backward_lower<kCubic, 2>,
       .general = kScales},
      {.name = "aten::_upsample_bilinear2d_aa_backward",
       .lower = upsample_backward_lower<kLinearAa, 2>},
      {.name = "aten::_upsample_bicubic2d_aa_backward",
       .lower = upsample_backward_lower<kCubicAa, 2>},
      {.name = "aten::_upsample_lanczos2d_aa_backward",
       .lower = upsample_backward_lower<kLanczosAa, 2>},
      {.name = "aten::grid_sampler_2d", .type = grid_sample_type, .lower = grid_sample_lower},
      {.name = "aten::grid_sampler_3d", .type = grid_sample_type, .lower = grid_sample_lower},
      {.name = "aten::grid_sampler_2d_backward",
       .type = grid_sample_backward_type,
       .lower = grid_sample_backward_lower},
      {.name = "aten::grid_sampler_3d_backward",
       .type = grid_sample_backward_type,
       .lower = grid_sample_backward_lower},
  };
  return kRows;
}

}  // namespace tp::ops
