// Ledger: how many bytes of a device's memory our buffers hold, counted where they are made and
// freed. Plugins need not tell (CPU ones do not). Any thread; a few relaxed atomics a buffer.
#pragma once
#include <atomic>
#include <cstdint>

namespace tp::client {

class Ledger {
 public:
  void add(int64_t bytes) {
    int64_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void remove(int64_t bytes) { live_.fetch_sub(bytes, std::memory_order_relaxed); }
  void donate(int64_t bytes) {
    remove(bytes);
    donated_.fetch_add(bytes, std::memory_order_relaxed);
  }
  int64_t live() const { return live_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  int64_t donated() const { return donated_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_.store(live(), std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> live_{0}, peak_{0}, donated_{0};
};

}  // namespace tp::client
