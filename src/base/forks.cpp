#include "base/forks.h"

#include <pthread.h>

#include <atomic>

namespace tp {
namespace {

struct Entry {
  void* lock;
  void (*acquire)(void*);
  void (*release)(void*);
  Entry* next;
};
constexpr int kOrders = static_cast<int>(ForkOrder::kTable) + 1;
// Lists that only grow; without a lock of their own, which a fork would have to hold as well.
std::atomic<Entry*> g_entries[kOrders];
Entry* g_held[kOrders];  // by the fork in progress: there is one at a time

void hold_all() {
  for (int i = 0; i < kOrders; ++i) {
    g_held[i] = g_entries[i].load(std::memory_order_acquire);
    for (Entry* e = g_held[i]; e; e = e->next) e->acquire(e->lock);
  }
}
void release_all() {
  for (int i = kOrders; i-- > 0;)
    for (Entry* e = g_held[i]; e; e = e->next) e->release(e->lock);
}

}  // namespace

void hold_over_forks(ForkOrder order, void* lock, void (*acquire)(void*), void (*release)(void*)) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(hold_all, release_all, release_all); });
  auto& list = g_entries[static_cast<int>(order)];
  auto* e = new Entry{lock, acquire, release, list.load(std::memory_order_relaxed)};
  while (!list.compare_exchange_weak(e->next, e, std::memory_order_release)) {
  }
}

}  // namespace tp
