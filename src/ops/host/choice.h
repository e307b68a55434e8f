// For which calls PyTorch's CPU kernel takes less time than XLA's code for CPUs, by op and shape
// (Row::faster_on_host): docs/performance.md has the measurements. Pure; any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// The results of `l`'s node as a host call's (host.h); false, with `out` untouched, where the row's
// own lowering is to be taken.
bool lower_on_host(const Row& row, Lowering& l, std::vector<V>& out);

namespace faster_on_host {
bool convolution(const Lowering& l);
bool convolution_backward(const Lowering& l);
bool batch_norm(const Lowering& l);
bool batch_norm_backward(const Lowering& l);
bool layer_norm(const Lowering& l);
bool max_pool_backward(const Lowering& l);
bool along_a_row(const Lowering& l);           // of "self", along its last dim
bool gradient_along_a_row(const Lowering& l);  // likewise, of "output"
}  // namespace faster_on_host

}  // namespace tp::ops
