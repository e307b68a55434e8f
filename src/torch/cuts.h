// Reads that force a sync (graph cuts), and reads that wait: counted per user line and kind, with
// the time they took. Any thread; a few tens of nanoseconds beside a read's microseconds.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/callers.h"

namespace tp::torch_room {

// What the reads of this scope are called, where the reader knows better than the kernel: "print",
// "bool", "aten::sort on the CPU", and how a program does without them. The outermost one wins.
// Texts live for the process.
class ReadKind {
 public:
  explicit ReadKind(const char* name, const char* advice = nullptr);
  ~ReadKind();
  ReadKind(const ReadKind&) = delete;

 private:
  bool set_;
};
const char* exchange_read_kind(const char* name);  // null: none
const char* permanent(const std::string& name);    // the same text, kept for the process

// One read. `cut()` before it syncs: throws inside no_cuts(). `synced()` behind it: the rest is
// waiting. The destructor adds the time.
class Read {
 public:
  explicit Read(const char* kind);
  ~Read();
  Read(const Read&) = delete;
  void cut();
  void synced();

 private:
  void record();
  const char* kind_;
  ir::Site where_;
  const char* advice_ = nullptr;
  int64_t start_, wait_;
  bool cut_ = false;
};

struct ReadLine {
  const char* kind;
  ir::Site where;
  const char* advice;  // what to do about its cuts
  int64_t cuts, reads, wait_ns;
};
std::vector<ReadLine> read_lines();
void clear_read_lines();

// While on, a cut raises at its line: for the calling thread and the backward passes that it starts
// (torch/thread_modes.h). Takes and gives ThreadMode::kNoCuts's values.
int exchange_no_cuts(int to);
bool cuts_forbidden();

}  // namespace tp::torch_room
