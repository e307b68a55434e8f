// Average pooling and the adaptive poolings. Sums go axis by axis; the divisor is one constant
// vector an axis.
#include <algorithm>

#include "ops/nn/pool.h"
#include "ops/reduce/axis.h"

namespace tp::ops {
namespace {

V sum_axis(Builder& b, V x, const PoolWindow& w) {
  if (w.kernel > kUnrolledWindow) {
    int64_t axis = w.axis + 1;
    return b.reduce(stack_windows(b, x, w), {&axis, 1}, Builder::Red::kSum);
  }
  V sum;
  for (int64_t k = 0; k < w.kernel; ++k) {
    V tap = window_tap(b, x, w, k);
    sum = sum ? b.add(sum, tap) : tap;
  }
  return sum;
}

// Scales one axis of x: divides by the count of each position.
V divide_axis(Builder& b, V x, int64_t axis, const IntList& counts) {
  if (std::ranges::all_of(counts, [&](int64_t c) { return c == counts[0]; }))
    return counts.empty() || counts[0] == 1 ? x : b.div(x, b.constant_int(counts[0], x.type));
  return b.div(x, stretch(b, b.constant_list(counts, x.dtype()), x, {&axis, 1}));
}

// How many values each window of one axis counts.
IntList counts_of(const PoolWindow& w, bool include_padding) {
  IntList n;
  for (int64_t o = 0; o < w.out; ++o) {
    int64_t first = w.start(o), last = std::min(first + w.kernel, w.in + w.padding);
    n.push_back(include_padding ? last - first
                                : std::min(last, w.in) - std::max<int64_t>(first, 0));
  }
  return n;
}

// Eager divides once, by the product; only integers can tell.
V divide_windows(Lowering& l, V x, const std::vector<PoolWindow>& windows) {
  Builder& b = l.builder();
  if (l.has("divisor_override")) return b.div(x, l.number("divisor_override", x.type));
  bool include = l.b_or("count_include_pad", true);
  V count;
  bool uniform = true;
  int64_t product = 1;
  for (const PoolWindow& w : windows) {
    IntList n = counts_of(w, include);
    uniform &= std::ranges::all_of(n, [&](int64_t c) { return c == n[0]; });
    product *= n.empty() ? 1 : n[0];
    V along = stretch(b, b.constant_list(n, x.dtype()), x, {&w.axis, 1});
    count = count ? b.mul(count, along) : along;
  }
  return b.div(x, uniform ? b.constant_int(product, x.type) : count);
}

TapTable window_taps(const PoolWindow& w) {
  TapTable taps;
  for (int64_t o = 0; o < w.out; ++o) {
    taps.emplace_back();
    for (int64_t p = std::max<int64_t>(w.start(o), 0); p < std::min(w.start(o) + w.kernel, w.in);
         ++p)
      taps.back().push_back({p, 1.0});
  }
  return taps;
}

V unsum_axis(Builder& b, V grad, const PoolWindow& w) {
  if (w.stride != 1 || w.kernel > kUnrolledWindow)
    return apply_taps(b, grad, w.axis, transpose_taps(window_taps(w), w.in));
  std::vector<V> terms(static_cast<size_t>(w.kernel), grad);
  IntList offsets;
  for (int64_t k = 0; k < w.kernel; ++k) offsets.push_back(k - w.padding);
  return spread(b, terms, offsets, w.axis, 1, w.in);
}

// --- adaptive

struct AdaptiveAxis {
  int64_t axis, in, out;
  int64_t start(int64_t o) const { return o * in / out; }
  int64_t end(int64_t o) const { return ((o + 1) * in + out - 1) / out; }
};

std::vector<AdaptiveAxis> adaptive_axes(Ints in, Ints out, size_t spatial) {
  std::vector<AdaptiveAxis> axes;
  for (size_t i = in.size() - spatial; i < in.size(); ++i)
    axes.push_back({static_cast<int64_t>(i), in[i], out[i]});
  return axes;
}

TapTable adaptive_taps(const AdaptiveAxis& a) {
  TapTable taps(static_cast<size_t>(a.out));
  for (int64_t o = 0; o < a.out; ++o)
    for (int64_t p = a.start(o); p < a.end(o); ++p)
      taps[static_cast<size_t>(o)].push_back({p, 1.0});
  return taps;
}

IntList adaptive_counts(const AdaptiveAxis& a) {
  IntList n;
  for (int64_t o = 0; o < a.out; ++o) n.push_back(a.end(o) - a.start(o));
  return n;
}

// Shorter windows repeat their last position: a value twice changes no maximum.
V adaptive_stack(Builder& b, V x, const AdaptiveAxis& a) {
  int64_t longest = 0;
  for (int64_t o = 0; o < a.out; ++o) longest = std::max(longest, a.end(o) - a.start(o));
  IntList positions;
  for (int64_t o = 0; o < a.out; ++o)
    for (int64_t j = 0; j < longest; ++j)
      positions.push_back(std::min(a.start(o) + j, a.end(o) - 1));
  return take_stacked(b, x, a.axis, positions, a.out);
}

V computed(Lowering& l, std::string_view name) {
  V v = l.in(name);
  return l.builder().convert(v, ir::compute_dtype(v.dtype()));
}

}  // namespace

template <size_t n>
void avg_pool_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  V x = computed(l, "self");
  std::vector<PoolWindow> windows = pool_windows(l, x.dims(), l.out().dims(), n);
  x = pad_windows(b, x, b.zeros(ir::scalar_type(x.dtype())), windows);
  for (size_t i = n; i-- > 0;) x = sum_axis(b, x, windows[i]);
  out.push_back(b.convert(divide_windows(l, x, windows), l.out().dtype()));
}

template <size_t n>
void avg_pool_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad_output");
  if (l.out().numel() == 0 || grad.type.numel() == 0) return out.push_back(b.zeros(l.out()));
  std::vector<PoolWindow> windows = pool_windows(l, l.out().dims(), grad.dims(), n);
  grad = divide_windows(l, grad, windows);
  for (const PoolWindow& w : windows) grad = unsum_axis(b, grad, w);
  out.push_back(b.convert(grad, l.out().dtype()));
}

template <size_t n>
void adaptive_avg_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  if (l.out().numel() == 0) return out.push_back(b.zeros(l.out()));
  V x = computed(l, "self");
  std::vector<AdaptiveAxis> axes = adaptive_axes(x.dims(), l.out().dims(), n);
  for (size_t i = n; i-- > 0;) x = apply_taps(b, x, axes[i].axis, adaptive_taps(axes[i]));
  for (const AdaptiveAxis& a : axes) x = divide_axis(b, x, a.axis, adaptive_counts(a));
  out.push_back(b.convert(x, l.out().dtype()));
}

template <size_t n>
void adaptive_avg_backward_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V grad = computed(l, "grad_output");
  if (l.out().numel() == 0 || grad.type.numel() == 0) return out.push_back(b.zeros(l.out()));
  std::vector<AdaptiveAxis> axes = adaptive_axes(l.out().dims(), grad.dims(), n);
  for (const AdaptiveAxis& a : axes) grad = divide_axis(b, grad, a.axis, adaptive_counts(a));
  for (const AdaptiveAxis& a : axes)
    grad = apply_taps(b, grad, a.axis, transpose_taps(adaptive_taps(a), a.in));
  out.push_back(b.convert(grad, l.out().dtype()));
}

template <size_t n>
void adaptive_max_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  Indexed r{b.zeros(l.out(0)), b.zeros(l.out(1))};
  if (l.out().numel() != 0) {
    r = with_positions(b, x, n);
    std::vector<AdaptiveAxis> axes = adaptive_axes(x.dims(), l.out().dims(), n);
    for (size_t i = n; i-- > 0;)
      r = reduce_larger(b,
                        {adaptive_stack(b, r.value, axes[i]), adaptive_stack(b, r.index, axes[i])},
                        axes[i].axis + 1);
  }
  out.push_back(r.value);
  out.push_back(b.convert(r.index, DType::kS64));
}

template void avg_pool_lower<2>(Lowering&, std::vector<V>&);
template void avg_pool_lower<3>(Lowering&, std::vector<V>&);
template void avg_pool_backward_lower<2>(Lowering&, std::vector<V>&);
template void avg_pool_backward_lower<3>(Lowering&, std::vector<V>&);
template void adaptive_avg_lower<2>(Lowering&, std::vector<V>&);
template void adaptive_avg_lower<3>(Lowering&, std::vector<V>&);
template void adaptive_avg_backward_lower<2>(Lowering&, std::vector<V>&);
template void adaptive_avg_backward_lower<3>(Lowering&, std::vector<V>&);
template void adaptive_max_lower<2>(Lowering&, std::vector<V>&);
template void adaptive_max_lower<3>(Lowering&, std::vector<V>&);

}  // namespace tp::ops
