#include "torch/thread_modes.h"

#include "torch/compat.h"

namespace tp::torch_room {
namespace {

// A mode is a mark, so that a backward's threads have it too.
constexpr const char* kNames[][2] = {{"tp eager off", "tp eager on"}, {"tp cuts", "tp no cuts"}};

const char* name_of(ThreadMode m, int on) { return kNames[static_cast<int>(m)][on]; }

}  // namespace

int thread_mode(ThreadMode m) {
  for (int on : {kModeOn, kModeOff})
    if (compat::has_mark(name_of(m, on))) return on;
  return kModeUnset;
}

int exchange_thread_mode(ThreadMode m, int to) {
  int before = thread_mode(m);
  if (before != kModeUnset) compat::erase_mark(name_of(m, before));
  if (to != kModeUnset) compat::set_mark(name_of(m, to));
  return before;
}

}  // namespace tp::torch_room
