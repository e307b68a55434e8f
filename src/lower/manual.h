// A manual region (ir/region.h) as Shardy's manual computation.
#pragma once
#include <span>
#include <vector>

#include "hlo/builder.h"
#include "ir/node.h"
#include "shard/spelling.h"

namespace tp::lower {

// Throws kNotImplemented in GSPMD's form, which has no such regions.
std::vector<hlo::V> lower_manual(hlo::Builder& b, const ir::Node& n, std::span<const hlo::V> in,
                                 const shard::Spelling& spelling);

}  // namespace tp::lower
