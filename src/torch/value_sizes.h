// Ops whose result's size follows from values: the one number that says it is read, a graph cut at
// the user's line; all else is recorded. And checks of values. Any thread.
#pragma once
#include <torch/library.h>

namespace tp::torch_room {

void register_value_sizes(torch::Library& m);

}  // namespace tp::torch_room
