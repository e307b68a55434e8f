// A loop that never syncs records for ever: memory grows, and the one program in the end is huge.
// It is told once, when far more waits to be run than a step records. Any thread.
#pragma once
#include <atomic>
#include <cstdint>

#include "ir/node.h"

namespace tp::torch_room {

inline constexpr uint64_t kLookEvery = 1 << 18;  // nodes
inline std::atomic<uint64_t> g_next_look{kLookEvery};

void look_for_sync(const ir::Node& newest);
void note_synced();

// Called with each node that an op recorded; nothing of ours may be locked.
inline void note_recorded(const ir::Node& n) {
  if (n.sequence() >= g_next_look.load(std::memory_order_relaxed)) [[unlikely]]
    look_for_sync(n);
}

}  // namespace tp::torch_room
