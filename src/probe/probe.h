// Counters and timers. Write-only for the rooms: they stamp, never read; only bind/ and tests read.
// Cheap enough for hot paths: a Counter is one relaxed atomic add. Thread-safe.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tp::probe {

class Counter {
 public:
  void add(int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }
  void reset() { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

class Timer {
 public:
  void record(int64_t ns) {
    count_.fetch_add(1, std::memory_order_relaxed);
    total_ns_.fetch_add(ns, std::memory_order_relaxed);
    last_ns_.store(ns, std::memory_order_relaxed);
  }
  int64_t count() const { return count_.load(std::memory_order_relaxed); }
  int64_t total_ns() const { return total_ns_.load(std::memory_order_relaxed); }
  int64_t last_ns() const { return last_ns_.load(std::memory_order_relaxed); }
  void reset() { count_ = total_ns_ = last_ns_ = 0; }

 private:
  std::atomic<int64_t> count_{0}, total_ns_{0}, last_ns_{0};
};

// Found or made by name; the reference stays valid for the process: keep it in a static.
Counter& counter(std::string_view name);
Timer& timer(std::string_view name);

// Stamps `t` with the time between construction and destruction.
class Span {
 public:
  explicit Span(Timer& t) : timer_(t), start_(std::chrono::steady_clock::now()) {}
  ~Span() { timer_.record(elapsed_ns()); }
  Span(const Span&) = delete;
  int64_t elapsed_ns() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                                start_)
        .count();
  }

 private:
  Timer& timer_;
  std::chrono::steady_clock::time_point start_;
};

struct CounterValue {
  std::string name;
  int64_t value;
};
struct TimerValue {
  std::string name;
  int64_t count;
  double seconds;
};
std::vector<CounterValue> counters();  // the non-zero ones, by name
std::vector<TimerValue> timers();
void clear();

// Progress messages go to one sink (stderr unless replaced by Python's logging). level: the dial of
// TORCH_PJRT_DEBUG at which it shows; 0 always.
void say(int level, std::string_view text);
void set_sink(void (*sink)(int level, std::string_view text));

}  // namespace tp::probe
