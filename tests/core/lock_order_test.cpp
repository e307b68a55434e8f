// A wrong order of locks is caught at the first try, without a second thread to be blocked by.
#include "base/lock_order.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

#include "base/error.h"

namespace tp {
namespace {

template <LockRank rank>
using Checked = RankedMutex<rank, true>;

TEST(LockOrder, OuterLocksAreTakenBeforeInnerOnes) {
  Checked<LockRank::kGraph> outer;
  Checked<LockRank::kPrograms> inner;
  std::lock_guard first(outer);
  std::lock_guard second(inner);
}

TEST(LockOrder, AnOuterLockUnderAnInnerOneIsRefusedAndNotTaken) {
  Checked<LockRank::kGraph> outer;
  Checked<LockRank::kPrograms> inner;
  {
    std::lock_guard first(inner);
    EXPECT_THROW(outer.lock(), Error);
  }
  std::lock_guard both(outer);  // would wait for ever had it been taken
}

TEST(LockOrder, TwoOfOneRankAreRefused) {
  Checked<LockRank::kTable> a, b;
  std::lock_guard first(a);
  EXPECT_THROW(b.lock(), Error);
}

TEST(LockOrder, LocksAreGivenBackInAnyOrder) {
  Checked<LockRank::kGraph> outer;
  Checked<LockRank::kPrograms> inner;
  outer.lock();
  inner.lock();
  outer.unlock();
  EXPECT_THROW(outer.lock(), Error);
  inner.unlock();
  std::lock_guard again(outer);
}

TEST(LockOrder, EachThreadHasItsOwnOrder) {
  Checked<LockRank::kTable> inner;
  Checked<LockRank::kGraph> outer;
  std::lock_guard mine(inner);
  std::thread([&] { std::lock_guard theirs(outer); }).join();
}

TEST(LockOrder, AWaitingLockIsNotedWhileItIsHeldOnly) {
  Checked<LockRank::kPrograms> inner;
  Checked<LockRank::kGraph> outer;
  std::condition_variable ready;
  RankedLock lock(inner);
  ready.wait(lock, [] { return true; });
  EXPECT_THROW(outer.lock(), Error);
  lock.unlock();
  {
    std::lock_guard between(outer);
  }
  lock.lock();
  EXPECT_THROW(outer.lock(), Error);
}

TEST(LockOrder, AMutexThatIsNotCheckedIsAPlainOne) {
  static_assert(sizeof(RankedMutex<LockRank::kGraph, false>) == sizeof(std::mutex));
  RankedMutex<LockRank::kGraph, false> outer;
  RankedMutex<LockRank::kPrograms, false> inner;
  std::lock_guard first(inner);
  std::lock_guard second(outer);
}

}  // namespace
}  // namespace tp
