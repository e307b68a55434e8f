// Counters and timers. Write-only for the rooms: they stamp, never read; only bind/ and tests read.
// Cheap enough for hot paths: a Counter is one relaxed atomic add. Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <bit>
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

// Durations, or another amount (bytes): count, sum, and a histogram whose buckets are an eighth of
// their lower edge wide, so that a percentile is right to 13 %.
class Timer {
 public:
  void record(int64_t ns) {
    count_.fetch_add(1, std::memory_order_relaxed);
    buckets_[bucket_of(ns)].fetch_add(1, std::memory_order_relaxed);
    total_ns_.fetch_add(ns, std::memory_order_relaxed);
    last_ns_.store(ns, std::memory_order_relaxed);
  }
  int64_t count() const { return count_.load(std::memory_order_relaxed); }
  int64_t total_ns() const { return total_ns_.load(std::memory_order_relaxed); }
  int64_t last_ns() const { return last_ns_.load(std::memory_order_relaxed); }
  // The amount that `share` (0..1) of the records do not exceed; 0 before the first.
  double percentile(double share) const;
  void reset();

 private:
  static constexpr size_t kSteps = 8, kBuckets = 62 * kSteps;
  static size_t bucket_of(int64_t v) {
    auto u = static_cast<uint64_t>(v < 0 ? 0 : v);
    if (u < kSteps) return static_cast<size_t>(u);
    int shift = static_cast<int>(std::bit_width(u)) - 4;  // u >> shift is 8..15
    return static_cast<size_t>(shift) * kSteps + static_cast<size_t>(u >> shift);
  }
  std::atomic<int64_t> count_{0}, total_ns_{0}, last_ns_{0};
  std::array<std::atomic<uint32_t>, kBuckets> buckets_{};
};

// Found or made by name; the reference stays valid for the process: keep it in a static.
Counter& counter(std::string_view name);
Timer& timer(std::string_view name);
Timer& accumulator(std::string_view name);  // amounts that are no times

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
  std::array<double, 7> percentiles;  // seconds, at kPercentiles
};
inline constexpr std::array<double, 7> kPercentiles = {0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99};
std::vector<CounterValue> counters();  // the non-zero ones, by name
std::vector<TimerValue> timers();
std::vector<TimerValue> accumulators();  // amounts instead of seconds
void clear();

// Progress messages go to one sink (stderr unless replaced by Python's logging). level: the dial of
// TORCH_PJRT_DEBUG at which it shows; 0 always.
int64_t dial();
void say(int level, std::string_view text);
void set_sink(void (*sink)(int level, std::string_view text));

}  // namespace tp::probe
