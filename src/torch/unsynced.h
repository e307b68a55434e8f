// A loop that never syncs would record for ever: memory grows, and the one program in the end is
// huge. Once TORCH_PJRT_CUT_NODES nodes were recorded without a sync, what is pending is looked at:
// a loop is run at the end of its round, so that each such cut finds the programs of the last one;
// anything else at eight times as many nodes. Never while a step is captured, a function is traced,
// or cuts are forbidden. The user is told once. Any thread.
#pragma once
#include <atomic>
#include <cstdint>

#include "ir/node.h"

namespace tp::torch_room {

inline std::atomic<uint64_t> g_next_look{0};  // at the node of that sequence

void look_for_sync(const ir::Node& newest);
// A sync has ended: the count begins anew.
void note_synced();
// Between ops, where a cut is due (OpScope, torch/eager.h): looks, and runs what is pending or
// leaves it. The GIL may be held.
void cut_if_due();
// A full sync that the user did not ask for (torch/runtime.cpp).
void sync_unasked();

// Called with each node that an op recorded; nothing of ours may be locked.
inline void note_recorded(const ir::Node& n) {
  if (n.sequence() >= g_next_look.load(std::memory_order_relaxed)) [[unlikely]]
    look_for_sync(n);
}

}  // namespace tp::torch_room
