// Eager mode: after every recorded op, what it wrote is run, through the same key, cache and
// executor as everything else, and as asynchronously. For all threads, or for one and the backward
// passes that it starts (torch/thread_modes.h).
#pragma once
#include <atomic>

namespace tp::torch_room {

class Alias;

// Has an OpScope anything to do: may any thread be in eager mode, or is a cut due?
inline std::atomic<bool> g_eager_mode{false};
inline bool eager_mode() { return g_eager_mode.load(std::memory_order_relaxed); }
bool eager_here();     // is the calling thread?
bool eager_for_all();  // are those that set nothing?
// Both run what is pending before they switch on, so that no op of eager mode finds a graph behind
// its operands, and give what was set before. The GIL may be held.
bool set_eager_mode(bool on);            // of the threads that set none of their own
int exchange_thread_eager_mode(int to);  // ThreadMode::kEager's values

// A long recording (torch/unsynced.h) waits to be looked at before the next op.
void set_cut_due(bool due);

// The calling thread's op gave the alias a new pending value.
void touch(Alias& a);

// Around each op's recording; `end` runs what was touched inside the outermost one, where this
// thread is in eager mode. An op that fails runs nothing.
class OpScope {
 public:
  OpScope() : on_(eager_mode()) {
    if (on_) [[unlikely]]
      enter();
  }
  ~OpScope() {
    if (on_) [[unlikely]]
      leave();
  }
  OpScope(const OpScope&) = delete;
  void end() {
    if (on_) [[unlikely]]
      run();
  }

 private:
  static void enter();
  static void leave();
  static void run();
  const bool on_;
};

}  // namespace tp::torch_room
