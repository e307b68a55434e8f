// Which ops of the table PyTorch's CPU kernel computes in less time than XLA's code for CPUs, by
// op and shape: docs/performance.md has the measurements. Where a program may call this process,
// such a node becomes a host call (host.h) though its row has a lowering. Pure; any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// The results of `l`'s node as a host call's; false, with `out` untouched, where the row's own
// lowering is to be taken.
bool lower_on_host(Lowering& l, std::vector<V>& out);

}  // namespace tp::ops
