// Resizing: nearest, linear, cubic and the antialiased filters, 1-3 spatial dims. Each axis is a
// table of taps made here in eager's own arithmetic (float, double for double); the backward is the
// table's transpose. Pure functions; any thread.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/core/families.h"
#include "ops/nn/grid_sample.h"
#include "ops/reduce/axis.h"

namespace tp::ops {
namespace {

enum class Filter { kNearest, kNearestExact, kLinear, kCubic, kLinearAa, kCubicAa, kLanczosAa };

struct Resize {
  int64_t axis, in, out;
  bool align_corners;
  double scale;  // the user's; 0: none given
  bool exact_sizes =
      false;  // this kernel of eager's goes by the sizes where they are equal or doubled
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
  if (r.exact_sizes && (r.out == r.in || r.out == 2 * r.in)) return i * r.in / r.out;
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

std::vector<Resize> resizes(const Args& a, Ints in, Ints out, size_t spatial) {
  static constexpr std::string_view kScales[] = {"scales_d", "scales_h", "scales_w"};
  std::vector<Resize> r;
  for (size_t i = 0; i < spatial; ++i) {
    size_t axis = in.size() - spatial + i;
    std::string_view name = spatial == 1 ? "scales" : kScales[3 - spatial + i];
    r.push_back({static_cast<int64_t>(axis), in[axis], out[axis], a.b_or("align_corners", false),
                 a.f_or(name, 0.0), false});
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
  for (size_t i = n; i-- > 0;) x = apply_taps(b, x, axes[i].axis, taps_of(axes[i], f, x.dtype()));
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
  for (const Resize& r : axes)
    grad = apply_taps(b, grad, r.axis, transpose_taps(taps_of(r, f, grad.dtype()), r.in));
  out.push_back(b.convert(grad, l.out().dtype()));
}

}  // namespace

Family upsample() {
  using enum Filter;
  static const Row kRows[] = {
      {.name = "aten::upsample_nearest1d",
       .lower = upsample_lower<kNearest, 1>,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::upsample_nearest2d",
       .lower = upsample_lower<kNearest, 2>,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::upsample_nearest3d",
       .lower = upsample_lower<kNearest, 3>,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::_upsample_nearest_exact1d",
       .lower = upsample_lower<kNearestExact, 1>,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::_upsample_nearest_exact2d",
       .lower = upsample_lower<kNearestExact, 2>,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::_upsample_nearest_exact3d",
       .lower = upsample_lower<kNearestExact, 3>,
       .kernels = {{"compute_indices_weights_nearest", takes::kFloats | takes::kBytes}}},
      {.name = "aten::upsample_linear1d",
       .lower = upsample_lower<kLinear, 1>,
       .kernels = {{"compute_indices_weights_linear", takes::kFloats}}},
      {.name = "aten::upsample_bilinear2d",
       .lower = upsample_lower<kLinear, 2>,
       .kernels = {{"compute_indices_weights_linear", takes::kFloats | takes::kBytes}}},
      {.name = "aten::upsample_trilinear3d",
       .lower = upsample_lower<kLinear, 3>,
       .kernels = {{"compute_indices_weights_linear", takes::kFloats}}},
      {.name = "aten::upsample_bicubic2d",
       .lower = upsample_lower<kCubic, 2>,
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
      {.name = "aten::upsample_nearest1d_backward", .lower = upsample_backward_lower<kNearest, 1>},
      {.name = "aten::upsample_nearest2d_backward", .lower = upsample_backward_lower<kNearest, 2>},
      {.name = "aten::upsample_nearest3d_backward", .lower = upsample_backward_lower<kNearest, 3>},
      {.name = "aten::_upsample_nearest_exact1d_backward",
       .lower = upsample_backward_lower<kNearestExact, 1>},
      {.name = "aten::_upsample_nearest_exact2d_backward",
       .lower = upsample_backward_lower<kNearestExact, 2>},
      {.name = "aten::_upsample_nearest_exact3d_backward",
       .lower = upsample_backward_lower<kNearestExact, 3>},
      {.name = "aten::upsample_linear1d_backward", .lower = upsample_backward_lower<kLinear, 1>},
      {.name = "aten::upsample_bilinear2d_backward", .lower = upsample_backward_lower<kLinear, 2>},
      {.name = "aten::upsample_trilinear3d_backward", .lower = upsample_backward_lower<kLinear, 3>},
      {.name = "aten::upsample_bicubic2d_backward", .lower = upsample_backward_lower<kCubic, 2>},
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
