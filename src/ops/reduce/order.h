// Norms by their order, be it a constant or an input of the program. Pure; any thread, the
// Builder's owner.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// Over `dims` of `size`, which is no less than 0: the p-norm, p being the argument `order` (2 where
// it is absent); the number of what is not 0 for p = 0, the largest and the smallest for
// infinities.
V norm_of(Lowering& l, std::string_view order, V size, Ints dims);

}  // namespace tp::ops
