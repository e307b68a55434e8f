// Norms whose order is an input of the program. Pure; any thread, the Builder's owner.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// Over `dims` of `size`, which is no less than 0: the p-norm, with the number of what is not 0 for
// p = 0, and the largest and the smallest for infinities. `p` is 0-d.
V norm_of_order(Builder& b, V size, V p, Ints dims);

}  // namespace tp::ops
