// torch._assert_async: a check of values on the device that reads nothing, as on CUDA. What is
// recorded keeps one number a device up to date, which assertion failed first (0: none). It is a
// tensor like any other: computed with the step, captured and replayed with it. Whoever syncs,
// reads or waits looks at it, and raises, once, what failed and the line that recorded it.
//
// Threads: any; callers may hold the GIL.
#pragma once
#include <torch/library.h>

#include <atomic>
#include <cstdint>

namespace tp::torch_room {

void register_asserts(torch::Library& m);

// How often was something recorded, and how much of that is known to hold.
inline std::atomic<uint64_t> g_asserted{0}, g_held{0};

enum class Look : uint8_t { kWhatIsReady, kAndWait };  // of what was launched
void look_at_asserts(Look how);
// Throws where an assertion has failed and nobody was told. No lock of ours may be held.
inline void raise_failed_asserts(Look how) {
  if (g_asserted.load(std::memory_order_relaxed) != g_held.load(std::memory_order_relaxed))
      [[unlikely]]
    look_at_asserts(how);
}
// A captured step has run, with the assertions that were recorded in it.
void note_asserts_replayed();

}  // namespace tp::torch_room
