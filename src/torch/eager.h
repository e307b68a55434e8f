// Eager mode: after every recorded op, what it wrote is run, through the same key, cache and
// executor as everything else, and as asynchronously. For all threads: backward ops are recorded on
// autograd's.
#pragma once
#include <atomic>

namespace tp::torch_room {

class Alias;

inline std::atomic<bool> g_eager_mode{false};
inline bool eager_mode() { return g_eager_mode.load(std::memory_order_relaxed); }
// Runs what is pending before it switches on, so that no op of eager mode finds a graph behind its
// operands. Gives what the mode was. The GIL may be held.
bool set_eager_mode(bool on);

// The calling thread's op gave the alias a new pending value.
void touch(Alias& a);

// Around each op's recording; `end` runs what was touched inside the outermost one. An op that
// fails runs nothing.
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
