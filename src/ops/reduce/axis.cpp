// Taps, gathers and spreads along one axis (axis.h).
#include "ops/reduce/axis.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace tp::ops {
namespace {

constexpr size_t kUnrolledTaps = 8;

size_t longest(const TapTable& taps) {
  size_t n = 0;
  for (const auto& t : taps) n = std::max(n, t.size());
  return n;
}

bool all_weights(const TapTable& taps, double w) {
  for (const auto& t : taps)
    for (const Tap& tap : t)
      if (tap.weight != w) return false;
  return true;
}

// Each source repeated `times` in a row?
int64_t repeats(const TapTable& taps, int64_t sources) {
  auto n = static_cast<int64_t>(taps.size());
  if (sources == 0 || n % sources != 0) return 0;
  int64_t times = n / sources;
  for (int64_t i = 0; i < n; ++i) {
    const auto& t = taps[static_cast<size_t>(i)];
    if (t.size() != 1 || t[0].source != i / times) return 0;
  }
  return times;
}

// Targets that sum neighbouring blocks of equal size?
int64_t block_size(const TapTable& taps, int64_t sources) {
  auto n = static_cast<int64_t>(taps.size());
  if (n == 0 || sources % n != 0) return 0;
  int64_t size = sources / n;
  for (int64_t i = 0; i < n; ++i) {
    const auto& t = taps[static_cast<size_t>(i)];
    if (static_cast<int64_t>(t.size()) != size) return 0;
    for (int64_t j = 0; j < size; ++j)
      if (t[static_cast<size_t>(j)].source != i * size + j) return 0;
  }
  return size;
}

V scaled(Builder& b, V x, double w) { return w == 1 ? x : b.mul(x, w); }

V repeat(Builder& b, V x, int64_t dim, int64_t times) {
  IntList split(x.dims().begin(), x.dims().end()), map;
  split.insert(split.begin() + dim + 1, times);
  for (int64_t i = 0; i < x.rank(); ++i) map.push_back(i <= dim ? i : i + 1);
  V wide = b.broadcast(x, x.type.with(split), map);
  return b.reshape(wide, with_dim(x.dims(), dim, x.dim(static_cast<size_t>(dim)) * times));
}

V sum_blocks(Builder& b, V x, int64_t dim, int64_t size) {
  IntList split(x.dims().begin(), x.dims().end());
  split[static_cast<size_t>(dim)] /= size;
  split.insert(split.begin() + dim + 1, size);
  int64_t inner = dim + 1;
  return b.reduce(b.reshape(x, split), {&inner, 1}, Builder::Red::kSum);
}

// Taps laid out as columns: column j holds the j-th tap of each target.
struct Columns {
  IntList source;
  std::vector<double> weight;
  IntList present;
  bool full = true, unit = true;
  void push(const std::vector<Tap>& t, size_t j) {
    bool here = j < t.size();
    source.push_back(here ? t[j].source : 0);
    weight.push_back(here ? t[j].weight : 0);
    present.push_back(here);
    full &= here;
    unit &= !here || t[j].weight == 1;
  }
};

V constant_weights(Builder& b, const std::vector<double>& w, DType t) {
  if (!ir::is_int(t)) return constant_reals(b, w, t);
  return b.constant_list(IntList(w.begin(), w.end()), t);
}

// x (already gathered) times the weights, 0 where a target has no such tap. `dims` are the axes of
// x that the column runs over.
V weigh(Builder& b, V x, const Columns& c, Ints axes, Ints shape) {
  auto along = [&](V list) {
    return b.broadcast(b.reshape(list, shape), x.type.with(list.dtype()), axes);
  };
  if (!c.unit) x = b.mul(x, along(constant_weights(b, c.weight, x.dtype())));
  if (!c.full) x = b.select(along(b.constant_list(c.present, DType::kPred)), x, b.zeros(x.type));
  return x;
}

V unrolled(Builder& b, V x, int64_t dim, const TapTable& taps, size_t width) {
  auto n = static_cast<int64_t>(taps.size());
  V sum;
  for (size_t j = 0; j < width; ++j) {
    Columns c;
    for (const auto& t : taps) c.push(t, j);
    V term = weigh(b, take(b, x, dim, c.source), c, {&dim, 1}, {&n, 1});
    sum = sum ? b.add(sum, term) : term;
  }
  return sum;
}

V gathered(Builder& b, V x, int64_t dim, const TapTable& taps, size_t width) {
  Columns c;
  for (const auto& t : taps)
    for (size_t j = 0; j < width; ++j) c.push(t, j);
  const int64_t shape[] = {static_cast<int64_t>(taps.size()), static_cast<int64_t>(width)};
  IntList split = with_dim(x.dims(), dim, shape[0]);
  split.insert(split.begin() + dim + 1, shape[1]);
  V terms = b.reshape(take(b, x, dim, c.source), split);
  const int64_t axes[] = {dim, dim + 1};
  terms = weigh(b, terms, c, axes, shape);
  return b.reduce(terms, {&axes[1], 1}, Builder::Red::kSum);
}

}  // namespace

TapTable transpose_taps(const TapTable& taps, int64_t sources) {
  TapTable out(static_cast<size_t>(sources));
  for (size_t i = 0; i < taps.size(); ++i)
    for (const Tap& t : taps[i])
      out[static_cast<size_t>(t.source)].push_back({static_cast<int64_t>(i), t.weight});
  return out;
}

V apply_taps(Builder& b, V x, int64_t dim, const TapTable& taps) {
  int64_t sources = x.dim(static_cast<size_t>(dim));
  size_t width = longest(taps);
  if (width == 0 || x.type.numel() == 0)
    return b.zeros(x.type.with(with_dim(x.dims(), dim, static_cast<int64_t>(taps.size()))));
  double first = taps[0].empty() ? 0 : taps[0][0].weight;
  if (all_weights(taps, first)) {
    if (int64_t times = repeats(taps, sources)) return scaled(b, repeat(b, x, dim, times), first);
    if (int64_t size = block_size(taps, sources))
      return scaled(b, sum_blocks(b, x, dim, size), first);
  }
  return width <= kUnrolledTaps ? unrolled(b, x, dim, taps, width)
                                : gathered(b, x, dim, taps, width);
}

V take(Builder& b, V x, int64_t dim, Ints positions) {
  auto n = static_cast<int64_t>(positions.size());
  int64_t step = n > 1 ? positions[1] - positions[0] : 1;
  bool even = step > 0;
  for (size_t i = 1; i < positions.size(); ++i) even &= positions[i] - positions[i - 1] == step;
  if (n > 0 && even)
    return b.slice_dim(x, dim, positions[0], positions[static_cast<size_t>(n - 1)] + 1, step);
  hlo::GatherConfig c;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != dim) c.offset_dims.push_back(i);
  c.collapsed = {dim};
  c.start_index_map = {dim};
  c.slice_sizes = with_dim(x.dims(), dim, 1);
  c.index_vector_dim = 1;
  c.sorted = std::is_sorted(positions.begin(), positions.end());
  return b.gather(x, b.constant_list(positions, DType::kS32),
                  x.type.with(with_dim(x.dims(), dim, n)), c);
}

V spread(Builder& b, std::span<const V> terms, Ints offsets, int64_t dim, int64_t stride,
         int64_t size) {
  V zero = b.zeros(ir::scalar_type(terms[0].dtype()));
  Ints dims = terms[0].dims();
  int64_t n = dims[static_cast<size_t>(dim)], room = (size + stride - 1) / stride;
  IntList none(dims.size(), 0);
  std::vector<V> phases;
  for (int64_t r = 0; r < stride; ++r) {
    V sum;
    for (size_t k = 0; k < terms.size(); ++k) {
      int64_t rest = offsets[k] - r;
      if (rest % stride != 0) continue;
      int64_t shift = rest / stride;
      if (shift >= room || shift + n <= 0) continue;
      V placed = b.pad(terms[k], zero, with_dim(none, dim, shift),
                       with_dim(none, dim, room - n - shift), none);
      sum = sum ? b.add(sum, placed) : placed;
    }
    phases.push_back(sum ? sum : b.zeros(terms[0].type.with(with_dim(dims, dim, room))));
  }
  if (stride == 1) return phases[0];
  IntList split = with_dim(dims, dim, room);
  split.insert(split.begin() + dim + 1, 1);
  for (V& p : phases) p = b.reshape(p, split);
  V all = b.reshape(b.concat(phases, dim + 1), with_dim(dims, dim, room * stride));
  return b.slice_dim(all, dim, 0, size);
}

V constant_reals(Builder& b, std::span<const double> v, DType t) {
  auto n = static_cast<int64_t>(v.size());
  Type type = ir::make_type(t, {&n, 1});
  std::string items;
  for (double x : v) {
    check(std::isfinite(x), "weights are finite");
    std::string digits = cat(x);
    if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
    if (size_t e = digits.find('e');
        e != std::string::npos && digits.find('.') == std::string::npos)
      digits.insert(e, ".0");
    items += items.empty() ? digits : cat(", ", digits);
  }
  return b.op("stablehlo.constant", {}, type,
              cat("value = dense<", v.empty() ? "" : "[", items, v.empty() ? "" : "]",
                  "> : ", type.mlir()));
}

V stretch(Builder& b, V v, V x, Ints kept) { return b.broadcast(v, x.type.with(v.dtype()), kept); }

IntList with_dim(Ints dims, int64_t dim, int64_t n) {
  IntList out(dims.begin(), dims.end());
  out[static_cast<size_t>(dim)] = n;
  return out;
}

}  // namespace tp::ops
