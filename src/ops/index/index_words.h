// What eager's kernels that select along a dim say of an index that is out of range.
#pragma once
#include <string>

#include "base/text.h"
#include "ops/core/eager_rules.h"

namespace tp::ops {

inline std::string in_self(const BadIndex&) { return "index out of range in self"; }
inline std::string in_data(const BadIndex& i) {
  return cat("INDICES element is out of DATA bounds, id=", i.value, " axis_dim=", i.size);
}

}  // namespace tp::ops
