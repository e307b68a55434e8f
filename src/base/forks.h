// Locks that no fork catches locked: the child has none of the threads that would unlock them. A
// fork waits until it holds them all, in this order, so whoever has one neither forks nor waits for
// one that comes before it, nor for the GIL, which the forking thread may have.
//
// For locks that live as long as the process and are held for a few words of work. What is held for
// longer (a compile, a launch) belongs to the device, which no child may use (client::forked()).
#pragma once
#include <mutex>

#include "base/lock_order.h"

namespace tp {

enum class ForkOrder : unsigned char { kGraph, kState, kTable };

// Any thread, also one that holds such a lock.
void hold_over_forks(ForkOrder order, void* lock, void (*acquire)(void*), void (*release)(void*));

template <class Lock>
void hold_over_forks(ForkOrder order, Lock& lock) {
  hold_over_forks(
      order, &lock, [](void* l) { static_cast<Lock*>(l)->lock(); },
      [](void* l) { static_cast<Lock*>(l)->unlock(); });
}

// The lock of a table that lives as long as the process. No other lock is taken under it.
class TableMutex : public RankedMutex<LockRank::kTable> {
 public:
  // A fork holds all of them at once, so it takes them unchecked.
  TableMutex() { hold_over_forks(ForkOrder::kTable, static_cast<std::mutex&>(*this)); }
};

}  // namespace tp
