// Which lines made the tensors that are alive, now and at earlier syncs: a leak is a line whose
// count grows with the steps. Any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/location.h"

namespace tp::torch_room {

struct LiveLine {
  ir::LocationId where;
  int64_t count, bytes;
};
struct Sample {
  uint64_t sync;  // after so many syncs
  std::vector<LiveLine> lines;
};
std::vector<LiveLine> live_lines();
// Called at each sync; keeps a sample at the powers of two.
void sample_census(uint64_t sync);
std::vector<Sample> census_samples();  // the last eight, oldest first

}  // namespace tp::torch_room
