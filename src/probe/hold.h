// Messages that wait. A sink may run anything (a logging handler that reads a tensor, and so
// syncs), so it is never called by a thread that holds a lock of ours or that others wait for.
// Inside a Hold what is said is queued; it is told where a thread's outermost Hold ends, in that
// thread. What a sink's own reads say goes to stderr: told to the sink, it might never end. Any
// thread.
#pragma once

namespace tp::probe {

class Hold {
 public:
  // kLeave: of a thread that somebody waits for, who tells it then.
  enum class End { kTell, kLeave };
  explicit Hold(End end = End::kTell);
  ~Hold();
  Hold(const Hold&) = delete;

 private:
  const End end_;
};

// The same for scopes that no C++ block is: begin_hold() and, without a lock, end_hold().
void begin_hold();
void end_hold() noexcept;

}  // namespace tp::probe
