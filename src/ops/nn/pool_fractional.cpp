// Fractional max pooling: window starts come from the random samples, so the program gathers. Pure
// functions; any thread.
#include <algorithm>

#include "ops/index/indexing.h"
#include "ops/nn/pool.h"
#include "ops/reduce/axis.h"

namespace tp::ops {
namespace {

int64_t entry(const IntList& v, size_t i) { return v.size() == 1 ? v[0] : v[i]; }

// Starts of one axis' windows for every plane, [planes, out], from a sample a plane.
V window_starts(Builder& b, V sample, int64_t in, int64_t out, int64_t kernel) {
  Type t = sample.type.with(IntList{sample.dim(0), out});
  Type whole = t.with(DType::kS64);
  V last = b.constant_int(in - kernel, whole);
  if (out == 1) return last;
  V step = b.div(b.constant_int(in - kernel, t), b.constant_int(out - 1, t));
  V s = b.broadcast(sample, t, IntList{0});
  V at = b.convert(b.mul(b.add(b.iota(t, 1), s), step), DType::kS64);
  V start = b.sub(at, b.convert(b.mul(s, step), DType::kS64));
  return b.select(b.compare(b.iota(whole, 1), static_cast<double>(out - 1), hlo::Cmp::kEq), last,
                  start);
}

struct Planes {
  V flat;  // all values
  int64_t count, size;
  Type points;  // s64 [planes, out...]
};

// All combinations of offsets in scan order: position = sum of (start + offset) * pitch.
void visit(Builder& b, const Planes& p, const std::vector<V>& starts, const IntList& kernel,
           const IntList& in, V position, size_t axis, Indexed& best) {
  if (axis == starts.size()) {
    V plane = b.mul(b.iota(p.points, 0), b.constant_int(p.size, p.points));
    V seen =
        b.reshape(take_along_list(b, p.flat, as_1d(b, b.add(plane, position)), 0), p.points.dims());
    Indexed tap{seen, position};
    best = best.value ? larger(b, best, tap) : tap;
    return;
  }
  V start = b.broadcast(starts[axis], p.points, IntList{0, static_cast<int64_t>(axis) + 1});
  V outer = b.mul(position, b.constant_int(in[axis], p.points));
  for (int64_t k = 0; k < kernel[axis]; ++k)
    visit(b, p, starts, kernel, in, b.add(outer, b.add(start, static_cast<double>(k))), axis + 1,
          best);
}

}  // namespace

template <size_t n>
void fractional_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  if (l.out().numel() == 0) {
    out.push_back(b.zeros(l.out(0)));
    return out.push_back(b.zeros(l.out(1)));
  }
  Ints in = x.dims().last(n), size = l.out().dims().last(n);
  IntList points{x.type.numel()}, kernel;
  for (int64_t d : in) points[0] /= d;
  points.insert(points.end(), size.begin(), size.end());
  Planes p{as_1d(b, x), points[0], x.type.numel() / points[0], ir::make_type(DType::kS64, points)};
  V samples = b.reshape(l.in("random_samples"), IntList{p.count, static_cast<int64_t>(n)});
  std::vector<V> starts;
  for (size_t i = 0; i < n; ++i) {
    kernel.push_back(entry(l.ints("kernel_size"), i));
    // Two dims take their samples in the order (width, height), three in (depth, height, width).
    auto from = static_cast<int64_t>(n == 2 ? 1 - i : i);
    V sample = b.reshape(b.slice_dim(samples, 1, from, from + 1), IntList{p.count});
    starts.push_back(window_starts(b, sample, in[i], size[i], kernel[i]));
  }
  // Of a window of no values eager gives what it starts with: -infinity, where the window begins.
  bool empty = std::ranges::any_of(kernel, [](int64_t k) { return k <= 0; });
  if (empty) kernel.assign(n, 1);
  Indexed best;
  visit(b, p, starts, kernel, IntList(in.begin(), in.end()), b.zeros(p.points), 0, best);
  if (empty) best.value = b.min_value(best.value.type);
  out.push_back(b.reshape(best.value, l.out(0).dims()));
  out.push_back(b.reshape(best.index, l.out(1).dims()));
}

template void fractional_lower<2>(Lowering&, std::vector<V>&);
template void fractional_lower<3>(Lowering&, std::vector<V>&);

}  // namespace tp::ops
