#include "torch/thread_modes.h"

#include <ATen/ThreadLocalPythonObjects.h>

#include <string>

namespace tp::torch_room {
namespace {

using at::impl::ThreadLocalPythonObjects;

// A part of at::ThreadLocalState that is open to others: objects by name. Ours say all by being
// there, and hold no Python object.
constexpr const char* kNames[][2] = {{"tp eager off", "tp eager on"}, {"tp cuts", "tp no cuts"}};

const char* name_of(ThreadMode m, int on) { return kNames[static_cast<int>(m)][on]; }

}  // namespace

int thread_mode(ThreadMode m) {
  for (int on : {kModeOn, kModeOff})
    if (ThreadLocalPythonObjects::contains(name_of(m, on))) return on;
  return kModeUnset;
}

int exchange_thread_mode(ThreadMode m, int to) {
  int before = thread_mode(m);
  if (before != kModeUnset) ThreadLocalPythonObjects::erase(name_of(m, before));
  if (to != kModeUnset)
    ThreadLocalPythonObjects::set(name_of(m, to),
                                  std::make_shared<c10::SafePyObject>(nullptr, nullptr));
  return before;
}

}  // namespace tp::torch_room
