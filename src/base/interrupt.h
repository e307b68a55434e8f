// Waits that Ctrl-C can end. The core knows no Python: src/bind says which thread hears signals and
// throws an exception of its own where the user wants the program to stop. What was being waited
// for goes on; code that waits here must leave everything as a failure would. Thread-safe.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tp {

// `hears`: must the calling thread look up from its waits? `look`: throws to end them. Null: never.
void set_interrupt_hooks(bool (*hears)(), void (*look)());
bool hears_interrupts();
void look_for_interrupt();

inline constexpr std::chrono::milliseconds kInterruptTick{50};

// cv.wait(lock, done), `lock` being a std::unique_lock or a RankedLock. The lock is free while this
// looks, and where it throws.
template <class Lock, class Done>
void wait_interruptibly(Lock& lock, std::condition_variable& cv, const Done& done) {
  if (!hears_interrupts()) return cv.wait(lock, done);
  while (!cv.wait_for(lock, kInterruptTick, done)) {
    lock.unlock();
    look_for_interrupt();
    lock.lock();
  }
}

inline std::unique_lock<std::timed_mutex> lock_interruptibly(std::timed_mutex& mu) {
  if (!hears_interrupts()) return std::unique_lock(mu);
  std::unique_lock lock(mu, std::defer_lock);
  while (!lock.try_lock_for(kInterruptTick)) look_for_interrupt();
  return lock;
}

}  // namespace tp
