// Nodes that carry regions (ir/region.h) as StableHLO's `while` and `if`.
#pragma once
#include <span>
#include <vector>

#include "hlo/builder.h"
#include "ir/region.h"

namespace tp::lower {

// What the region computes of these values.
std::vector<hlo::V> run_region(hlo::Builder& b, const ir::Region& r,
                               std::span<const hlo::V> parameters);

void lower_control(hlo::Builder& b, const ir::Node& n, std::span<const hlo::V> in,
                   std::vector<hlo::V>& out);

}  // namespace tp::lower
