// What compiles left free in malloc's arenas goes back to the system.
#include "base/heap.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tp {
namespace {

using std::chrono::milliseconds;

int trims = 0;

TEST(HeapTrimmer, TrimsOnceInHalfASecondOfCompiling) {
  trims = 0;
  HeapTrimmer trimmer([] { ++trims; });
  for (int i = 0; i < 4; ++i) trimmer.compiled(milliseconds(100));
  EXPECT_EQ(trims, 0);
  trimmer.compiled(milliseconds(100));
  EXPECT_EQ(trims, 1);
  trimmer.compiled(milliseconds(499));
  EXPECT_EQ(trims, 1);
  trimmer.compiled(milliseconds(5000));
  EXPECT_EQ(trims, 2);
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * 4096;
}

// Leaves `count` blocks of 64 KB free between small ones that live on, as compilers do.
std::vector<std::unique_ptr<char[]>> leave_holes(int count) {
  std::vector<std::unique_ptr<char[]>> kept, freed;
  for (int i = 0; i < count; ++i) {
    freed.emplace_back(new char[1 << 16]);
    std::memset(freed.back().get(), 1, 1 << 16);
    kept.emplace_back(new char[16]);
  }
  return kept;
}

TEST(TrimHeap, GivesBackWhatAnotherThreadLeftFree) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers bring a malloc of their own";
#endif
  constexpr int kBlocks = 800;
  std::vector<std::unique_ptr<char[]>> kept;
  std::thread([&] { kept = leave_holes(kBlocks); }).join();
  int64_t before = resident_bytes();
  trim_heap();
  EXPECT_GT(before - resident_bytes(), int64_t{kBlocks} * (1 << 15));
}

}  // namespace
}  // namespace tp
