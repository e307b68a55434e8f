// Reductions that give positions: argmax, max over a dim, median, k-th value, mode. The first of
// equals wins, and NaN counts as the largest, as in eager.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/families.h"
#include "ops/core/helpers.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
using hlo::Order;
using Red = Builder::Red;

// Positions along dim; 32-bit where they fit, because that is cheaper everywhere.
V positions(Builder& b, V x, int64_t dim) {
  bool small = x.dim(static_cast<size_t>(dim)) < INT32_MAX;
  return b.iota(x.type.with(small ? DType::kS32 : DType::kS64), dim);
}

V spread_along(Builder& b, V reduced, V x, int64_t dim) {
  IntList dims(x.dims().begin(), x.dims().end());
  dims[static_cast<size_t>(dim)] = 1;
  return b.broadcast_to(b.reshape(reduced, dims), x.dims());
}

struct Found {
  V value, index;  // with dim dropped
};

// The extreme, then the first place that holds it. NaN, where there is one, is the extreme.
Found find(Builder& b, V x, int64_t dim, Red how) {
  V value = b.reduce(x, IntList{dim}, how);
  V hit = b.compare(x, spread_along(b, value, x, dim), Cmp::kEq);
  if (ir::is_float(x.dtype())) hit = b.or_(hit, b.is_nan(x));
  V at = positions(b, x, dim);
  V index = b.reduce(b.select(hit, at, b.max_value(at.type)), IntList{dim}, Red::kMin);
  return {value, index};
}

V put_shape(Builder& b, V v, Type t) { return b.convert(b.reshape(v, t.dims()), t.dtype()); }

template <Red how>
void extreme_dim(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  int64_t dim = l.dim("dim", x.rank());
  if (x.rank() == 0) return out.assign({x, b.zeros(l.out(1))});
  Found f = find(b, x, dim, how);
  out.push_back(put_shape(b, f.value, l.out(0)));
  out.push_back(put_shape(b, f.index, l.out(1)));
}

template <Red how>
void arg_extreme(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  bool whole = !l.has("dim");
  if (whole) x = b.reshape(x, IntList{x.type.numel()});
  if (x.rank() == 0) return out.push_back(b.zeros(l.out()));
  Found f = find(b, x, whole ? 0 : l.dim("dim", x.rank()), how);
  out.push_back(put_shape(b, f.index, l.out()));
}

// --- order statistics ----------------------------------------------------------------------------

struct Sorted {
  V values, index;
};
Sorted sort_with_index(Builder& b, V x, int64_t dim) {
  std::array<V, 2> in{x, positions(b, x, dim)};
  auto less = [](Builder& r, std::span<const V> v) -> std::vector<V> {
    if (!ir::is_float(v[0].dtype())) return {r.compare(v[0], v[1], Cmp::kLt)};
    // NaN last, whatever its sign; -0 equals 0.
    V up = r.compare(v[0], v[1], Cmp::kLt);
    return {r.or_(up, r.and_(r.is_nan(v[1]), r.not_(r.is_nan(v[0]))))};
  };
  std::vector<V> out = b.sort(in, dim, true, less);
  return {out[0], out[1]};
}

// The element of v at position `at` (one for each row, dim dropped) along dim.
V pick(Builder& b, V v, V at, int64_t dim) {
  V here = positions(b, v, dim);
  V hit = b.compare(here, spread_along(b, b.convert(at, here.dtype()), v, dim), Cmp::kEq);
  if (v.dtype() == DType::kPred) return b.reduce(b.and_(v, hit), IntList{dim}, Red::kOr);
  return b.reduce(b.select(hit, v, b.zeros(v.type)), IntList{dim}, Red::kSum);
}

V row_type_of(Builder& b, V x, int64_t dim, int64_t fill) {
  IntList dims(x.dims().begin(), x.dims().end());
  dims.erase(dims.begin() + dim);
  return b.constant_int(fill, ir::make_type(DType::kS64, dims));
}

void finish(Lowering& l, std::vector<V>& out, V value, V index) {
  out.push_back(put_shape(l.builder(), value, l.out(0)));
  if (l.node().types().size() > 1) out.push_back(put_shape(l.builder(), index, l.out(1)));
}

void kth_value(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  int64_t dim = l.dim("dim", x.rank());
  if (x.rank() == 0) return out.assign({x, b.zeros(l.out(1))});
  Sorted s = sort_with_index(b, x, dim);
  if (V given = l.input("k")) {
    std::vector<V> starts(x.dims().size(), b.zeros(given.type));
    starts[static_cast<size_t>(dim)] = b.sub(given, 1.0);
    IntList sizes(x.dims().begin(), x.dims().end());
    sizes[static_cast<size_t>(dim)] = 1;
    return finish(l, out, b.dynamic_slice(s.values, starts, sizes),
                  b.dynamic_slice(s.index, starts, sizes));
  }
  int64_t k = l.i("k") - 1;
  finish(l, out, b.slice_dim(s.values, dim, k, k + 1), b.slice_dim(s.index, dim, k, k + 1));
}

enum class Nan { kWins, kIgnored };

// The lower of the two middle values. With NaN winning, a row that has one answers with the first
// of them.
template <Nan nan>
void median(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  bool whole = !l.has("dim");
  if (whole) x = b.reshape(x, IntList{x.type.numel()});
  if (x.rank() == 0) return out.assign({x, b.zeros(l.out(1))});
  int64_t dim = whole ? 0 : l.dim("dim", x.rank()), n = x.dim(static_cast<size_t>(dim));
  if (n == 0)
    return finish(l, out, b.constant(std::numeric_limits<double>::quiet_NaN(), l.out()), V{});
  Sorted s = sort_with_index(b, x, dim);
  V at = row_type_of(b, x, dim, (n - 1) / 2);
  if (ir::is_float(x.dtype())) {
    V nans = b.reduce(b.convert(b.is_nan(x), DType::kS64), IntList{dim}, Red::kSum);
    V numbers = b.sub(row_type_of(b, x, dim, n), nans);
    V first_nan = b.select(b.compare(numbers, n, Cmp::kLt), numbers, at);
    V lower = b.max(b.sub(numbers, 1.0), 0.0);
    at = nan == Nan::kWins ? first_nan : b.div(lower, b.constant_int(2, lower.type));
  }
  // A sum of one NaN and zeros is that NaN, so picking by a masked sum is exact.
  finish(l, out, pick(b, s.values, at, dim), pick(b, s.index, at, dim));
}

// Running maximum along dim, in log2(n) steps.
V running_max(Builder& b, V x, int64_t dim) {
  auto d = static_cast<size_t>(dim);
  for (int64_t step = 1; step < x.dim(d); step *= 2) {
    IntList low(x.dims().size(), 0), high(x.dims().size(), 0), none(x.dims().size(), 0);
    low[d] = step, high[d] = -step;
    x = b.max(x, b.pad(x, b.zeros(ir::scalar_type(x.dtype())), low, high, none));
  }
  return x;
}

// Sorted, equal values stand in runs; the longest run wins, the smaller value on a tie, at its last
// place.
void mode(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = l.in("self");
  int64_t dim = l.dim("dim", x.rank());
  if (x.rank() == 0) return out.assign({x, b.zeros(l.out(1))});
  int64_t n = x.dim(static_cast<size_t>(dim));
  Sorted s = sort_with_index(b, x, dim);
  V at = positions(b, x, dim);
  V length = b.zeros(at.type);
  if (n > 1) {
    V differs =
        b.compare(b.slice_dim(s.values, dim, 1, n), b.slice_dim(s.values, dim, 0, n - 1), Cmp::kNe);
    V begins = b.select(differs, b.slice_dim(at, dim, 1, n), b.zeros(at.type.with(differs.dims())));
    std::array<V, 2> parts{b.zeros(b.slice_dim(at, dim, 0, 1).type), begins};
    length = b.sub(at, running_max(b, b.concat(parts, dim), dim));
  }
  Found f = find(b, length, dim, Red::kMax);
  finish(l, out, pick(b, s.values, f.index, dim), pick(b, s.index, f.index, dim));
}

// --- types ---------------------------------------------------------------------------------------

// Selections need something to select from; `op` is eager's name for it.
template <Text op>
void type_with_index(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  IntList dim{a.dim("dim", x.rank())};
  if (x.rank() && x.dim(static_cast<size_t>(dim[0])) == 0)
    fail(Code::kIndex,
         cat(op.text, "(): Expected reduction dim ", dim[0], " to have non-zero size."));
  Type t = x.with(reduced_dims(x.dims(), dim, a.b_or("keepdim", false)));
  out.push_back(t);
  out.push_back(t.with(DType::kS64));
}

void type_kth_value(const Args& a, std::vector<Type>& out) {
  Type x = a.type("self");
  int64_t dim = a.dim("dim", x.rank());
  type_with_index<"kthvalue">(a, out);
  int64_t n = x.rank() ? x.dim(static_cast<size_t>(dim)) : 1;
  if (a.i("k") < 1 || a.i("k") > n)
    fail(Code::kRuntime, "kthvalue(): selected number k out of range for dimension " + cat(dim));
}

void type_scalar(const Args& a, std::vector<Type>& out) {
  out.push_back(ir::scalar_type(a.type("self").dtype()));
}

std::string values_words(DType want, DType have) {
  return cat("expected scalar type '", eager_name(want).scalar, "' but got '",
             eager_name(have).scalar, "' for values output");
}
std::string same_type_words(DType, DType) { return "output values must be of same type as input"; }

const Row kRows[] = {
    {"aten::max.dim", nullptr, extreme_dim<Red::kMax>},
    {"aten::min.dim", nullptr, extreme_dim<Red::kMin>},
    {"aten::argmax", nullptr, arg_extreme<Red::kMax>},
    {"aten::argmin", nullptr, arg_extreme<Red::kMin>},
    {.name = "aten::kthvalue",
     .type = type_kth_value,
     .lower = kth_value,
     .general = "k",
     .kernels = {{"kthvalue_cpu", takes::kNumbers | takes::kScalars}},
     .out = {.check = out_wants<same_type_words>, .may_alias = false}},
    {.name = "aten::median",
     .type = type_scalar,
     .lower = median<Nan::kWins>,
     .kernels = {{"median_cpu", takes::kNumbers | takes::kEmpty}}},
    {.name = "aten::nanmedian",
     .type = type_scalar,
     .lower = median<Nan::kIgnored>,
     .kernels = {{"median_cpu", takes::kNumbers | takes::kEmpty}}},
    {.name = "aten::median.dim",
     .type = type_with_index<"median">,
     .lower = median<Nan::kWins>,
     .kernels = {{"median_out", takes::kNumbers | takes::kEmpty}},
     .out = {.check = out_wants<values_words>}},
    {.name = "aten::nanmedian.dim",
     .type = type_with_index<"median">,
     .lower = median<Nan::kIgnored>,
     .kernels = {{"median_out", takes::kNumbers | takes::kEmpty}},
     .out = {.check = out_wants<values_words>}},
    {.name = "aten::mode",
     .type = type_with_index<"mode">,
     .lower = mode,
     .kernels = {{"mode_cpu", takes::kReals | takes::kEmpty}},
     .out = {.check = out_wants<values_words>}},
};

}  // namespace

Family reduction_index() { return kRows; }

}  // namespace tp::ops
