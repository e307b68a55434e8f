// Shared gathers, scatters, scans and sorts (indexing.h).
#include "ops/index/indexing.h"

#include <algorithm>
#include <numeric>

namespace tp::ops {
namespace {

IntList with_axis(Ints dims, int64_t dim, int64_t n) {
  IntList v(dims.begin(), dims.end());
  v[static_cast<size_t>(dim)] = n;
  return v;
}

// Full coordinates of the elements that `index` (along dim) names: [index dims..., axes]. Axes
// along which the index has one element stay at 0 and are left out.
struct Coordinates {
  V at;
  IntList axes;
};

Coordinates coordinates(Builder& b, V index, int64_t dim) {
  Coordinates c;
  IntList one = dims_of(index.type);
  one.push_back(1);
  std::vector<V> parts;
  for (int64_t d = 0; d < index.rank(); ++d) {
    if (d != dim && index.dim(static_cast<size_t>(d)) == 1) continue;
    c.axes.push_back(d);
    V part = d == dim ? index : positions(b, index.dims(), d, index.dtype());
    parts.push_back(b.reshape(part, one));
  }
  c.at = b.concat(parts, index.rank());
  return c;
}

}  // namespace

IntList iota_dims(int64_t n) {
  IntList v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 0);
  return v;
}
IntList dims_of(Type t) { return IntList(t.dims().begin(), t.dims().end()); }
int64_t dim_size(Ints dims, int64_t dim) {
  return dims.empty() ? 1 : dims[static_cast<size_t>(dim)];
}
V as_1d(Builder& b, V v) { return b.reshape(v, IntList{v.type.numel()}); }
V at_least_1d(Builder& b, V v) { return v.rank() == 0 ? b.reshape(v, IntList{1}) : v; }

V wrap_index(Builder& b, V index, int64_t size) {
  if (ir::is_unsigned(index.dtype())) return index;
  V negative = b.compare(index, b.zeros(index.type), hlo::Cmp::kLt);
  return b.select(negative, b.add(index, b.constant_int(size, index.type)), index);
}

V along(Builder& b, V list, Ints dims, int64_t dim) {
  return b.broadcast(list, ir::make_type(list.dtype(), dims), IntList{dim});
}
V positions(Builder& b, Ints dims, int64_t dim, DType t) {
  return b.iota(ir::make_type(t, dims), dim);
}

V take_along_list(Builder& b, V x, V index, int64_t dim) {
  IntList dims = with_axis(x.dims(), dim, index.dim(0));
  Type out = x.type.with(dims);
  if (out.numel() == 0) return b.zeros(out);
  hlo::GatherConfig c;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim) c.offset_dims.push_back(d);
  c.collapsed = {dim};
  c.start_index_map = {dim};
  c.slice_sizes = with_axis(x.dims(), dim, 1);
  c.index_vector_dim = 1;
  return b.gather(x, index, out, c);
}

V gather_along(Builder& b, V x, V index, int64_t dim) {
  Type out = x.type.with(index.dims());
  if (out.numel() == 0) return b.zeros(out);
  Coordinates at = coordinates(b, index, dim);
  hlo::GatherConfig c;
  c.collapsed = iota_dims(x.rank());
  c.start_index_map = at.axes;
  c.slice_sizes = IntList(static_cast<size_t>(x.rank()), 1);
  c.index_vector_dim = index.rank();
  return b.gather(x, at.at, out, c);
}

hlo::Region combine_region(Combine how) {
  return [how](Builder& b, std::span<const V> x) -> std::vector<V> {
    bool pred = x[0].dtype() == DType::kPred;
    switch (how) {
      case Combine::kSet:
        return {x[1]};
      case Combine::kAdd:
        return {b.add(x[0], x[1])};
      case Combine::kMul:
        return {b.mul(x[0], x[1])};
      case Combine::kMax:
        return {pred ? b.or_(x[0], x[1]) : b.max(x[0], x[1])};
      case Combine::kMin:
        return {pred ? b.and_(x[0], x[1]) : b.min(x[0], x[1])};
    }
    return {};
  };
}

V scatter_along(Builder& b, V x, V index, V src, int64_t dim, Combine how) {
  if (index.type.numel() == 0 || x.type.numel() == 0) return x;
  Coordinates at = coordinates(b, index, dim);
  hlo::ScatterConfig c;
  c.inserted_window_dims = iota_dims(x.rank());
  c.scatter_dims_to_operand = at.axes;
  c.index_vector_dim = index.rank();
  return b.scatter(x, at.at, src, c, combine_region(how));
}

V scatter_list(Builder& b, V x, V index, V src, int64_t dim, Combine how) {
  if (src.type.numel() == 0 || x.type.numel() == 0) return x;
  hlo::ScatterConfig c;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim) c.update_window_dims.push_back(d);
  c.inserted_window_dims = {dim};
  c.scatter_dims_to_operand = {dim};
  c.index_vector_dim = 1;
  return b.scatter(x, index, src, c, combine_region(how));
}

namespace {

using Red = Builder::Red;

// A window's cost is its length, so blocks are short.
constexpr int64_t kBlock = 32;

V identity_of(Builder& b, Red how, DType t) {
  Type s = ir::scalar_type(t);
  switch (how) {
    case Red::kProd:
      return b.ones(s);
    case Red::kMax:
      return b.min_value(s);
    case Red::kMin:
      return b.max_value(s);
    default:
      return b.zeros(s);
  }
}

V combined(Builder& b, Red how, V x, V y) {
  switch (how) {
    case Red::kProd:
      return b.mul(x, y);
    case Red::kMax:
      return b.max(x, y);
    case Red::kMin:
      return b.min(x, y);
    default:
      return b.add(x, y);
  }
}

// Keeps a pass from being computed again inside each of its users.
V settled(Builder& b, V v) { return b.op("stablehlo.optimization_barrier", {v}, v.type); }

V running_window(Builder& b, V v, int64_t dim, Red how) {
  IntList one(v.dims().size(), 1), none(v.dims().size(), 0);
  int64_t n = v.dim(static_cast<size_t>(dim));
  return b.reduce_window(v, identity_of(b, how, v.dtype()), with_axis(one, dim, n), one,
                         with_axis(none, dim, n - 1), none, one, one, how);
}

}  // namespace

V running(Builder& b, V v, int64_t dim, Red how) {
  int64_t n = v.dim(static_cast<size_t>(dim)), blocks = (n + kBlock - 1) / kBlock;
  if (v.type.numel() == 0 || n == 1) return v;
  if (blocks == 1) return running_window(b, v, dim, how);
  IntList none(v.dims().size(), 0), split = with_axis(v.dims(), dim, blocks);
  V init = identity_of(b, how, v.dtype());
  V whole = b.pad(v, init, none, with_axis(none, dim, blocks * kBlock - n), none);
  split.insert(split.begin() + dim + 1, kBlock);
  V inner = settled(b, running_window(b, b.reshape(whole, split), dim + 1, how));
  V ends =
      b.reshape(b.slice_dim(inner, dim + 1, kBlock - 1, kBlock), with_axis(v.dims(), dim, blocks));
  ends = running(b, ends, dim, how);
  V before = b.pad(ends, init, with_axis(none, dim, 1), with_axis(none, dim, -1), none);
  IntList map;
  for (int64_t d = 0; d < v.rank(); ++d) map.push_back(d <= dim ? d : d + 1);
  V sum = combined(b, how, b.broadcast(before, inner.type, map), inner);
  return b.slice_dim(b.reshape(sum, whole.dims()), dim, 0, n);
}

namespace {

// A pass of running() at a shift that the loop doubles: the step's code stands there once. What
// comes from in front of the first element is not used.
std::vector<V> running_pass(Builder& b, std::span<const V> state, int64_t dim,
                            const ScanStep& step) {
  V shift = state[0], v = state[1];
  int64_t n = v.dim(static_cast<size_t>(dim));
  IntList none(v.dims().size(), 0);
  V wide = b.pad(v, b.zeros(ir::scalar_type(v.dtype())), with_axis(none, dim, n), none, none);
  std::vector<V> starts(v.dims().size(), b.zeros(shift.type));
  starts[static_cast<size_t>(dim)] = b.sub(b.constant_int(n, shift.type), shift);
  V later = step(b, b.dynamic_slice(wide, starts, v.dims()), v);
  V place = positions(b, v.dims(), dim, shift.dtype());
  V reached = b.compare(place, b.broadcast_to(shift, v.dims()), hlo::Cmp::kGe);
  return {b.add(shift, shift), b.select(reached, later, v)};
}

}  // namespace

V running(Builder& b, V v, int64_t dim, const ScanStep& step) {
  constexpr int64_t kMostWrittenOut = 16;
  int64_t n = v.dim(static_cast<size_t>(dim));
  if (n > kMostWrittenOut) {
    auto more = [n](Builder& c, std::span<const V> s) -> std::vector<V> {
      return {c.compare(s[0], c.constant_int(n, s[0].type), hlo::Cmp::kLt)};
    };
    auto pass = [&](Builder& c, std::span<const V> s) { return running_pass(c, s, dim, step); };
    V init[] = {b.constant_int(1, ir::scalar_type(DType::kS64)), v};
    return b.while_loop(init, more, pass)[1];
  }
  for (int64_t shift = 1; shift < n; shift *= 2) {
    V later = step(b, b.slice_dim(v, dim, 0, n - shift), b.slice_dim(v, dim, shift, n));
    V parts[] = {b.slice_dim(v, dim, 0, shift), later};
    v = settled(b, b.concat(parts, dim));
  }
  return v;
}

V mask_ranks(Builder& b, V mask) {
  return b.sub(running_sum(b, b.convert(as_1d(b, mask), DType::kS64), 0), 1);
}

Sorted sort_along(Builder& b, V v, int64_t dim, bool descending) {
  DType t = v.dtype() == DType::kPred ? DType::kU8 : v.dtype();
  int64_t n = v.dim(static_cast<size_t>(dim));
  DType index = n <= INT32_MAX ? DType::kS32 : DType::kS64;
  V in[] = {b.convert(v, t), positions(b, v.dims(), dim, index)};
  hlo::Region less = [&](Builder& c, std::span<const V> x) -> std::vector<V> {
    V before = c.compare(x[0], x[1], descending ? hlo::Cmp::kGt : hlo::Cmp::kLt);
    if (!ir::is_float(t)) return {before};
    V first = descending ? x[0] : x[1], second = descending ? x[1] : x[0];  // NaN is the greatest
    return {c.or_(before, c.and_(c.is_nan(first), c.not_(c.is_nan(second))))};
  };
  std::vector<V> out = b.sort(in, dim, true, less);
  return {b.convert(out[0], v.dtype()), b.convert(out[1], DType::kS64)};
}

}  // namespace tp::ops
