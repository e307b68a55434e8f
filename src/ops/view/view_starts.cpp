#include "ops/view/view_starts.h"

#include <algorithm>

namespace tp::ops {
namespace {

// A level whose start can be an input: it does not fill its extent and, for a write, is updated by
// a dynamic slice.
bool movable(const ViewLevel& l, ViewUse use) {
  if (l.count == l.extent) return false;
  return use == ViewUse::kRead || l.step == 1 || l.count == 1 || l.extent % l.step == 0;
}

V start_value(Builder& b, Starts starts, int input, int64_t start) {
  V given = input >= 0 && static_cast<size_t>(input) < starts.size()
                ? starts[static_cast<size_t>(input)]
                : V{};
  return given ? given : b.constant_int(start, ir::scalar_type(DType::kS64));
}
V start_of(Builder& b, Starts starts, const ViewSegment& s) {
  return start_value(b, starts, s.input, s.slice_start);
}
V start_of(Builder& b, Starts starts, const ViewLevel& l) {
  bool given = l.input >= 0 && static_cast<size_t>(l.input) < starts.size() &&
               starts[static_cast<size_t>(l.input)];
  V v = start_value(b, starts, l.input, l.start);
  if (!given || l.divisor == 0) return v;
  V by = b.constant_int(l.divisor, v.type);
  return l.remainder ? b.binary("stablehlo.remainder", v, by) : b.div(v, by);
}
template <class T>
std::vector<V> values_of(Builder& b, Starts starts, const std::vector<T>& parts) {
  std::vector<V> v;
  for (const T& part : parts) v.push_back(start_of(b, starts, part));
  return v;
}

}  // namespace

std::vector<int64_t> number_starts(ViewPlan& plan, ViewUse use) {
  std::vector<int64_t> values;
  for (ViewSegment& s : plan.segments) {
    if (s.whole()) continue;
    s.input = static_cast<int>(values.size());
    values.push_back(s.slice_start);
  }
  for (ViewLevel& l : plan.levels) {
    if (!movable(l, use)) continue;
    l.input = static_cast<int>(values.size());
    values.push_back(l.start);
  }
  return values;
}

bool any(Starts starts) {
  return std::any_of(starts.begin(), starts.end(), [](const V& v) { return static_cast<bool>(v); });
}

std::vector<V> starts_of(Builder& b, Starts starts, const std::vector<ViewSegment>& segments) {
  return values_of(b, starts, segments);
}
std::vector<V> starts_of(Builder& b, Starts starts, const std::vector<ViewLevel>& levels) {
  return values_of(b, starts, levels);
}

std::vector<int64_t> view_starts(const ViewSpec& spec, Type root, ViewUse use,
                                 std::vector<uint64_t>& structure) {
  auto sign = [&](int64_t v) { structure.push_back(static_cast<uint64_t>(v)); };
  if (spec.dtype != root.dtype() || ir::make_type(spec.dtype, spec.size).numel() == 0) {
    sign(spec.offset);
    return {};
  }
  IntList dims;  // in memory order
  for (int64_t d : memory_order(root.dims(), spec.base_stride))
    dims.push_back(root.dim(static_cast<size_t>(d)));
  ViewPlan plan = plan_view(dims, spec.size, spec.stride, spec.offset);
  sign(plan.gather);
  if (plan.gather) return {spec.offset};
  std::vector<int64_t> values = number_starts(plan, use);
  for (const ViewSegment& s : plan.segments)
    for (int64_t v : {int64_t{s.dim_begin}, int64_t{s.dim_end}, s.extent, s.slice_len,
                      int64_t{s.level_end}, s.input < 0 ? s.slice_start : -1})
      sign(v);
  for (const ViewLevel& l : plan.levels)
    for (int64_t v : {l.extent, l.count, l.step, int64_t{l.view_dim}, l.input < 0 ? l.start : -1})
      sign(v);
  return values;
}

}  // namespace tp::ops
