// Runs: stretches of a sequence that repeat themselves, as the ops of a loop do. Pure; any thread.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace tp::exec {

// words[i] == words[i + period] for all i in [start, end - period).
struct Run {
  uint32_t start, end, period;
  uint32_t count() const { return (end - start) / period; }
};

// Runs of at least kLeastRounds periods, in order, none overlapping another. Longer ones are looked
// for first: a loop of steps is found, not the loops inside of a step. O(n log n).
inline constexpr uint32_t kLeastRounds = 8;
std::vector<Run> find_runs(std::span<const uint64_t> words);

}  // namespace tp::exec
