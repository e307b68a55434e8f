// Memory that malloc holds free, in the arenas of all threads.
//
// A compiler frees nearly all that it took (130 MB for each second of XLA's), but it stays in the
// arenas of the threads that compiled, resident, and no step ever needs as much again: GPT training
// held 640 MB of it. So it is given back behind compiles.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

namespace tp {

// Gives the free pages back to the system. Takes about 0.1 ms a megabyte that goes; threads that
// allocate meanwhile may wait for it. Nothing where the C library is not glibc. Any thread.
void trim_heap();

// Trims once compiles have taken half a second since the last time: one small compile leaves
// little behind, and the next one would only take it anew. Any thread.
class HeapTrimmer {
 public:
  using Trim = void (*)();
  explicit HeapTrimmer(Trim trim = &trim_heap) : trim_(trim) {}
  void compiled(std::chrono::nanoseconds spent);

 private:
  const Trim trim_;
  std::atomic<int64_t> since_ns_{0};
};

// While it lives, the thread compiles, loads or stores a program. The end of the outermost one of a
// thread counts for the process's trimmer, whether that program came about or not.
class CompileHeap {
 public:
  CompileHeap();
  ~CompileHeap();
  CompileHeap(const CompileHeap&) = delete;

 private:
  const bool outermost_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tp
