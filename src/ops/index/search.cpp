// isin, searchsorted, bucketize, histc (search.h).
#include "ops/index/search.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/eager_text.h"
#include "ops/core/helpers.h"
#include "ops/index/indexing.h"

namespace tp::ops {
namespace {

using hlo::Cmp;
using Red = Builder::Red;

// Up to this many elements are compared one by one: that fuses, while a search gathers.
constexpr int64_t kCompareAll = 64;

// Whether the sorted element stands before the value's insertion point.
V before(Builder& b, V element, V value, bool right) {
  return b.not_(b.compare(element, value, right ? Cmp::kGt : Cmp::kGe));
}

// Every value against every element: [values..., n].
V count_before(Builder& b, V sorted, V values, bool right) {
  int64_t n = sorted.dims().back(), rank = values.rank();
  IntList dims = dims_of(values.type), map{rank};
  dims.push_back(n);
  if (sorted.rank() > 1) {
    map = iota_dims(rank - 1);
    map.push_back(rank);
  }
  V elements = b.broadcast(sorted, sorted.type.with(dims), map);
  V wide = b.broadcast(values, values.type.with(dims), iota_dims(rank));
  V hit = b.convert(before(b, elements, wide, right), DType::kS64);
  return b.reduce(hit, IntList{rank}, Red::kSum);
}

// The elements at `place` (dims of the values).
V element_at(Builder& b, V sorted, V place) {
  if (sorted.rank() > 1) return gather_along(b, sorted, place, sorted.rank() - 1);
  return b.reshape(take_along_list(b, sorted, as_1d(b, place), 0), place.dims());
}

// Binary search, all values at once, in eager's very steps: in a sequence with nan, which is not
// sorted by <, the answer depends on them.
V search(Builder& b, V sorted, V values, bool right) {
  int64_t n = sorted.dims().back();
  Type t = values.type.with(DType::kS64);
  V start = b.zeros(t), end = b.constant_int(n, t);
  for (int64_t left = n; left > 0; left /= 2) {
    V middle = b.add(start, b.div(b.sub(end, start), b.constant_int(2, t)));
    V element = element_at(b, sorted, middle);  // clamped where nothing is left
    V open = b.compare(start, end, Cmp::kLt), up = before(b, element, values, right);
    V next = b.select(b.and_(open, up), b.add(middle, b.ones(t)), start);
    end = b.select(b.and_(open, b.not_(up)), middle, end);
    start = next;
  }
  return start;
}

V comparable(Builder& b, V v) { return v.dtype() == DType::kPred ? b.convert(v, DType::kU8) : v; }

}  // namespace

V insertion_points(Builder& b, V sorted, V values, bool right) {
  if (values.type.numel() == 0 || sorted.dims().back() == 0)
    return b.zeros(values.type.with(DType::kS64));
  sorted = comparable(b, sorted);
  values = comparable(b, values);
  bool few = sorted.dims().back() <= kCompareAll && !ir::is_float(sorted.dtype());
  return few ? count_before(b, sorted, values, right) : search(b, sorted, values, right);
}

// --- isin

namespace {

// The least number, or infinity where there is none.
V lowest_but_nan(Builder& b, V x) {
  V most = b.constant(std::numeric_limits<double>::infinity(), x.type);
  return b.reduce(b.select(b.is_nan(x), most, x), IntList{0}, Red::kMin);
}

}  // namespace

void isin_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  const char* names[] = {l.has("elements") ? "elements" : "element",
                         l.has("test_elements") ? "test_elements" : "test_element"};
  DType t = l.common_dtype({names[0], names[1]});
  V elements = b.convert(l.in(names[0]), t), tests = as_1d(b, b.convert(l.in(names[1]), t));
  V found;
  if (elements.type.numel() == 0 || tests.dim(0) == 0) {
    found = b.zeros(l.out());
  } else if (tests.dim(0) <= kCompareAll) {
    IntList dims = dims_of(elements.type), last{elements.rank()};
    dims.push_back(tests.dim(0));
    V wide = b.broadcast(elements, elements.type.with(dims), iota_dims(elements.rank()));
    V each = b.compare(wide, along(b, tests, dims, elements.rank()), Cmp::kEq);
    found = b.reduce(each, last, Red::kOr);
  } else {
    elements = comparable(b, elements);
    tests = comparable(b, tests);
    V given = tests;
    if (ir::is_float(tests.dtype()))  // nan is in no set, and would lead the search astray
      tests =
          b.select(b.is_nan(tests), b.broadcast_to(lowest_but_nan(b, tests), tests.dims()), tests);
    V sorted = sort_along(b, tests, 0, false).values;
    V place = insertion_points(b, sorted, elements, false);
    found = b.compare(element_at(b, sorted, place), elements, Cmp::kEq);
    if (ir::is_float(tests.dtype())) {
      V some = b.reduce(b.not_(b.is_nan(given)), IntList{0}, Red::kOr);
      found = b.and_(found, b.broadcast_to(some, found.dims()));
    }
  }
  out.push_back(l.b_or("invert", false) ? b.not_(found) : found);
}

// --- searchsorted, bucketize

namespace {

void push_places(const Args& a, Type values, std::vector<Type>& out) {
  out.push_back(values.with(a.b_or("out_int32", false) ? DType::kS32 : DType::kS64));
}

void check_sorter(const Args& a, Type sequence) {
  auto sorter = a.opt_type("sorter");
  if (!sorter) return;
  if (!std::ranges::equal(sorter->dims(), sequence.dims()))
    fail(Code::kRuntime,
         cat("torch.searchsorted(): boundary and sorter must have the same size, but got "
             "boundary tensor ",
             size_text(sequence.dims()), "and got sorter tensor ", size_text(sorter->dims())));
  if (sorter->dtype() != DType::kS64)
    fail(Code::kRuntime,
         cat("torch.searchsorted(): sorter must be a tensor of long dtype but got dtype ",
             eager_name(sorter->dtype()).scalar));
}

}  // namespace

void searchsorted_type(const Args& a, std::vector<Type>& out) {
  Type sequence = a.type("sorted_sequence"), values = a.type("self");
  std::string_view side = a.text_or("side", "");
  if (!side.empty() && side != "left" && side != "right")
    fail(Code::kRuntime,
         cat("torch.searchsorted(): side can only be 'left' or 'right' but got ", side));
  if (side == "left" && a.b_or("right", false))
    fail(Code::kRuntime,
         "torch.searchsorted(): side and right can't be set to opposites, got side of left "
         "while right was True");
  check_sorter(a, sequence);
  if (sequence.rank() == 0)
    fail(Code::kRuntime,
         "torch.searchsorted(): boundaries tensor should have positive dimension, but got "
         "0 dimension");
  if (values.rank() == 0 && sequence.rank() != 1)
    fail(Code::kRuntime,
         cat("torch.searchsorted(): input value can be a scalar only when boundaries tensor "
             "dimension is 1, but we got boundaries tensor dim(",
             sequence.rank(), ") and input value's dim(0) numel(1)"));
  bool leading = sequence.rank() == values.rank();
  for (int d = 0; leading && d + 1 < values.rank(); ++d)
    leading = sequence.dim(static_cast<size_t>(d)) == values.dim(static_cast<size_t>(d));
  if (sequence.rank() != 1 && !leading)
    fail(Code::kRuntime,
         cat("torch.searchsorted(): boundaries tensor should be 1 dimension or the first "
             "N-1 dimensions of boundaries tensor and input value tensor must match, but "
             "we got boundaries tensor ",
             size_text(sequence.dims()), " and input value tensor ", size_text(values.dims())));
  push_places(a, values, out);
}
void searchsorted_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  DType t = l.common_dtype({"sorted_sequence", "self"});
  V sequence = l.in("sorted_sequence");
  if (V sorter = l.opt("sorter")) sequence = gather_along(b, sequence, sorter, sequence.rank() - 1);
  bool right = l.b_or("right", false) || l.text_or("side", "") == "right";
  put(l, out, insertion_points(b, b.convert(sequence, t), b.convert(l.in("self"), t), right));
}

void bucketize_type(const Args& a, std::vector<Type>& out) {
  Type boundaries = a.type("boundaries");
  if (boundaries.rank() != 1)
    fail(Code::kRuntime,
         cat("boundaries tensor must be 1 dimension, but got dim(", boundaries.rank(), ")"));
  push_places(a, a.type("self"), out);
}
void bucketize_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  DType t = l.common_dtype({"boundaries", "self"});
  V boundaries = b.convert(l.in("boundaries"), t);
  put(l, out, insertion_points(b, boundaries, b.convert(l.in("self"), t), l.b_or("right", false)));
}

// --- histc

void histc_type(const Args& a, std::vector<Type>& out) {
  Type self = a.type("self");
  int64_t bins = a.i_or("bins", 100);
  // Integers count too, as on CUDA though not on the CPU: libraries ask every other device for it.
  if (ir::is_complex(self.dtype()) || self.dtype() == DType::kPred)
    fail(Code::kNotImplemented, not_implemented_for("histogram_cpu", self.dtype()));
  if (bins <= 0)
    fail(Code::kRuntime,
         cat("torch.histogram(): bins must be > 0, but got ", bins, " for dimension 0"));
  double low = a.number_value("min").value_or(0), high = a.number_value("max").value_or(0);
  if (!std::isfinite(low) || !std::isfinite(high))
    fail(Code::kRuntime, cat("torch.histc: range of [", low, ", ", high, "] is not finite"));
  if (low > high) fail(Code::kRuntime, "torch.histc: max must be larger than min");
  out.push_back(self.with(IntList{bins}));
}
// Equal bounds stand for the data's own; bounds that are still equal are moved apart by one each.
void histc_lower(Lowering& l, std::vector<V>& out) {
  Builder& b = l.builder();
  V x = as_1d(b, l.in("self"));
  if (x.dim(0) == 0) return out.push_back(b.zeros(l.out()));
  x = b.convert(x, ir::is_float(x.dtype()) ? ir::compute_dtype(x.dtype()) : DType::kF64);
  int64_t bins = l.out().dim(0);
  Type scalar = ir::scalar_type(x.dtype());
  V low = number_or(l, "min", scalar, 0), high = number_or(l, "max", scalar, 0);
  V same = b.compare(low, high, Cmp::kEq);
  V lowest = b.select(same, b.reduce(x, IntList{0}, Red::kMin), low);
  V highest = b.select(same, b.reduce(x, IntList{0}, Red::kMax), high);
  same = b.compare(lowest, highest, Cmp::kEq);
  low = b.broadcast_to(b.select(same, b.sub(lowest, 1), lowest), x.dims());
  high = b.broadcast_to(b.select(same, b.add(highest, 1), highest), x.dims());
  V bin = b.div(b.mul(b.sub(x, low), static_cast<double>(bins)), b.sub(high, low));
  V inside = b.and_(b.compare(x, low, Cmp::kGe), b.compare(x, high, Cmp::kLe));
  Type places = x.type.with(DType::kS64);
  V place = b.min(b.convert(bin, DType::kS64), b.constant_int(bins - 1, places));
  place = b.select(inside, place, b.constant_int(bins, places));  // dropped by the scatter
  V counts = b.zeros(l.out().with(DType::kS64));
  put(l, out, scatter_list(b, counts, place, b.ones(places), 0, Combine::kAdd));
}

}  // namespace tp::ops
