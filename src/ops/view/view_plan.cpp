// plan_view: which reshape and slice of row-major memory a strided view is. Pure; any thread.
#include <algorithm>
#include <numeric>
#include <optional>

#include "ops/view/strided_view.h"

namespace tp::ops {
namespace {

// A view dimension that moves: its count of elements and its stride.
struct Axis {
  int64_t count, stride;
  int view_dim;
};

// Axes by descending stride; none where two of equal stride overlap.
std::optional<std::vector<Axis>> moving_axes(Ints size, Ints stride) {
  std::vector<Axis> axes;
  for (size_t i = 0; i < size.size(); ++i)
    if (size[i] > 1 && stride[i] != 0) axes.push_back({size[i], stride[i], static_cast<int>(i)});
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  for (size_t i = 1; i < axes.size(); ++i)
    if (axes[i].stride == axes[i - 1].stride) return std::nullopt;
  return axes;
}

int64_t span_of(std::span<const Axis> axes) {
  int64_t span = 0;
  for (const Axis& a : axes) span += (a.count - 1) * a.stride;
  return span;
}

// Whether the memory may be cut into units of `unit` elements: outer axes move by whole units and
// the inner ones stay within one.
bool cuts_at(std::span<const Axis> axes, int64_t offset, int64_t unit) {
  int64_t inner = offset % unit;
  for (const Axis& a : axes) {
    if (a.stride < unit)
      inner += (a.count - 1) * a.stride;
    else if (a.stride % unit != 0)
      return false;
  }
  return inner < unit;
}

// Levels of `axes` within a flat dim of `extent`; false where an inner window leaves its unit.
bool split_levels(std::span<const Axis> axes, int64_t extent, int64_t offset,
                  std::vector<ViewLevel>* out) {
  for (; axes.size() > 1; axes = axes.subspan(1)) {
    const Axis& a = axes[0];
    int64_t unit = std::gcd(a.stride, extent);
    int64_t start = offset / unit;
    offset %= unit;
    if (offset + span_of(axes.subspan(1)) >= unit) return false;
    out->push_back({extent / unit, start, a.count, a.stride / unit, a.view_dim});
    extent = unit;
  }
  if (axes.empty())
    out->push_back({extent, offset, 1, 1, -1});
  else
    out->push_back({extent, offset, axes[0].count, axes[0].stride, axes[0].view_dim});
  return true;
}

// Rows that begin anywhere: first a slice of whole rows (count * stride elements), then levels
// within it. `lead` elements of each row stand before the view's.
bool split_shifted(std::span<const Axis> axes, int64_t offset, ViewSegment* segment,
                   std::vector<ViewLevel>* out) {
  const Axis& row = axes[0];
  int64_t length = row.count * row.stride;
  int64_t least = std::max<int64_t>(0, offset + length - segment->extent);
  int64_t most = std::min(offset, row.stride - 1 - span_of(axes.subspan(1)));
  std::vector<int64_t> leads{least};
  for (const Axis& a : axes.subspan(1))
    leads.push_back((least + a.stride - 1) / a.stride * a.stride);
  for (int64_t lead : leads) {
    size_t mark = out->size();
    if (lead <= most && split_levels(axes, length, lead, out)) {
      segment->slice_start = offset - lead;
      segment->slice_len = length;
      return true;
    }
    out->resize(mark);
  }
  return false;
}

bool plan_segment(std::span<const Axis> axes, int64_t offset, ViewSegment segment, ViewPlan* plan) {
  size_t mark = plan->levels.size();
  segment.level_begin = static_cast<int>(mark);
  if (!split_levels(axes, segment.extent, offset, &plan->levels)) {
    plan->levels.resize(mark);
    if (!split_shifted(axes, offset, &segment, &plan->levels)) return false;
  }
  segment.level_end = static_cast<int>(plan->levels.size());
  plan->segments.push_back(segment);
  return true;
}

// The axes that move within units of `unit` up to `unit * extent`, with strides counted in units.
std::vector<Axis> local_axes(std::span<const Axis> axes, int64_t unit, int64_t extent) {
  std::vector<Axis> out;
  for (const Axis& a : axes)
    if (a.stride >= unit && a.stride < unit * extent)
      out.push_back({a.count, a.stride / unit, a.view_dim});
  return out;
}

}  // namespace

ViewPlan plan_view(Ints dims, Ints size, Ints stride, int64_t offset) {
  ViewPlan plan;
  auto axes = moving_axes(size, stride);
  int n = static_cast<int>(dims.size());
  int64_t unit = 1, extent = 1;
  std::vector<ViewSegment> cuts;  // innermost first
  for (int d = n - 1, end = n; axes && d >= 0; --d) {
    extent *= dims[static_cast<size_t>(d)];
    if (d > 0 && !cuts_at(*axes, offset, unit * extent)) continue;
    cuts.push_back({d, end, extent, 0, extent, 0, 0});
    unit *= extent, extent = 1, end = d;
  }
  for (auto s = cuts.rbegin(); axes && s != cuts.rend(); ++s) {
    unit /= s->extent;
    if (!plan_segment(local_axes(*axes, unit, s->extent), offset / unit % s->extent, *s, &plan))
      axes.reset();
  }
  if (!axes) return {.gather = true, .segments = {}, .levels = {}};
  return plan;
}

}  // namespace tp::ops
