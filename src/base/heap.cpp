#include "base/heap.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <utility>

namespace tp {
namespace {

thread_local bool t_inside = false;

}  // namespace

void trim_heap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void HeapTrimmer::compiled(std::chrono::nanoseconds spent) {
  constexpr int64_t kWorthNs = 500'000'000;
  int64_t before = since_ns_.fetch_add(spent.count());
  if (before + spent.count() < kWorthNs) return;
  since_ns_ = 0;
  trim_();
}

CompileHeap::CompileHeap() : outermost_(!std::exchange(t_inside, true)) {}

CompileHeap::~CompileHeap() {
  if (!outermost_) return;
  t_inside = false;
  static HeapTrimmer trimmer;
  trimmer.compiled(std::chrono::steady_clock::now() - start_);
}

}  // namespace tp
