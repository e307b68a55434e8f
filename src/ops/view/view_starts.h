// Starts of a view's slices that are inputs of a program: which can be, and their values in it.
// Private to the view resolver (ops/view/strided_view.h). Any thread, one Builder each.
#pragma once
#include <span>
#include <vector>

#include "ops/view/strided_view.h"

namespace tp::ops {

using Starts = std::span<const V>;

// Gives each start that can be an input its place (ViewSegment::input, ViewLevel::input), segments
// first; their values.
std::vector<int64_t> number_starts(ViewPlan& plan, ViewUse use);
bool any(Starts starts);  // is one an input?
// The start of each part as a 0-d s64 value: an input, or a constant.
std::vector<V> starts_of(Builder& b, Starts starts, const std::vector<ViewSegment>& segments);
std::vector<V> starts_of(Builder& b, Starts starts, const std::vector<ViewLevel>& levels);

}  // namespace tp::ops
