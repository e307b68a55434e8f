// The device generator: a seed and a count of draws. Each random op takes (seed, offset) as two
// run-time numbers of the program and advances offset by one, so that a loop of draws is one
// program, replays draw new numbers, and the same seed gives the same numbers however the graph is
// cut.
//
// Threads: guarded by the generator's own mutex, as PyTorch's generators are.
#pragma once
#include <ATen/core/Generator.h>

#include <optional>
#include <utility>

namespace tp::torch_room {

// The next (seed, offset) of g, or of the default generator. Throws for a generator of another
// device.
std::pair<int64_t, int64_t> next_random(const std::optional<at::Generator>& g);
const at::Generator& default_generator();
// Of the default generator: how far it is; and the (seed, offset) of `draws` numbers, which it
// moves behind.
uint64_t random_offset();
void set_random_offset(uint64_t offset);
std::pair<int64_t, int64_t> take_random(int64_t draws);
at::Generator new_generator(int device = 0);

}  // namespace tp::torch_room
