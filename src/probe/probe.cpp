#include "probe/probe.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "base/flags.h"
#include "base/forks.h"
#include "base/lock_order.h"
#include "probe/hold.h"

namespace tp::probe {
namespace {

struct Tables {
  TableMutex mu;
  std::map<std::string, std::unique_ptr<Counter>, std::less<>> counters;
  std::map<std::string, std::unique_ptr<Timer>, std::less<>> timers, accumulators;
};
Tables& tables() {
  static Tables* t = new Tables;
  return *t;
}

template <class M>
auto& find_or_make(M& map, std::string_view name) {
  std::lock_guard lock(tables().mu);
  auto it = map.find(name);
  if (it == map.end())
    it = map.emplace(std::string(name), std::make_unique<typename M::mapped_type::element_type>())
             .first;
  return *it->second;
}

std::vector<TimerValue> values(
    const std::map<std::string, std::unique_ptr<Timer>, std::less<>>& timers, double unit) {
  std::lock_guard lock(tables().mu);
  std::vector<TimerValue> out;
  for (auto& [name, t] : timers) {
    if (!t->count()) continue;
    TimerValue v{name, t->count(), static_cast<double>(t->total_ns()) * unit, {}};
    for (size_t i = 0; i < kPercentiles.size(); ++i)
      v.percentiles[i] = t->percentile(kPercentiles[i]) * unit;
    out.push_back(std::move(v));
  }
  return out;
}

void to_stderr(int, std::string_view text) {
  std::fprintf(stderr, "torch_pjrt: %.*s\n", static_cast<int>(text.size()), text.data());
}
std::atomic<void (*)(int, std::string_view)> g_sink{to_stderr};

struct Message {
  int level;
  std::string text;
};
struct Held {
  RankedMutex<LockRank::kMessages> mu;
  std::deque<Message> messages;
  std::atomic<bool> any{false};
};
Held& held() {
  static auto* h = new Held;
  return *h;
}
thread_local int t_holds = 0;
thread_local bool t_telling = false;

void tell(int level, std::string_view text) {
  if (t_telling) return to_stderr(level, text);
  t_telling = true;
  g_sink.load()(level, text);
  t_telling = false;
}

void tell_held() {
  Held& h = held();
  while (h.any.load(std::memory_order_relaxed)) {
    std::deque<Message> now;
    {
      std::lock_guard lock(h.mu);
      now.swap(h.messages);
      h.any = false;
    }
    for (const Message& m : now) tell(m.level, m.text);
  }
}

}  // namespace

Counter& counter(std::string_view name) { return find_or_make(tables().counters, name); }
Timer& timer(std::string_view name) { return find_or_make(tables().timers, name); }
Timer& accumulator(std::string_view name) { return find_or_make(tables().accumulators, name); }

double Timer::percentile(double share) const {
  int64_t all = count();
  if (all == 0) return 0;
  auto wanted = static_cast<int64_t>(share * static_cast<double>(all));
  int64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i].load(std::memory_order_relaxed);
    if (seen <= wanted) continue;
    if (i < 2 * kSteps) return static_cast<double>(i);
    size_t shift = i / kSteps - 1;  // the bucket's middle
    return std::ldexp(static_cast<double>(i - shift * kSteps) + 0.5, static_cast<int>(shift));
  }
  return static_cast<double>(last_ns());
}

void Timer::reset() {
  count_ = total_ns_ = last_ns_ = 0;
  for (auto& b : buckets_) b = 0;
}

std::vector<CounterValue> counters() {
  std::lock_guard lock(tables().mu);
  std::vector<CounterValue> out;
  for (auto& [name, c] : tables().counters)
    if (c->value()) out.push_back({name, c->value()});
  return out;
}

std::vector<TimerValue> timers() { return values(tables().timers, 1e-9); }
std::vector<TimerValue> accumulators() { return values(tables().accumulators, 1); }

void clear() {
  std::lock_guard lock(tables().mu);
  for (auto& [name, c] : tables().counters) c->reset();
  for (auto& [name, t] : tables().timers) t->reset();
  for (auto& [name, t] : tables().accumulators) t->reset();
}

int64_t dial() {
  static const int64_t level = std::max(flag_int(Flag::kDebug), flag_int(Flag::kDebugLevel));
  return level;
}

void say(int level, std::string_view text) {
  if (level > dial()) return;
  if (t_holds == 0) {
    tell_held();
    return tell(level, text);
  }
  Held& h = held();
  std::lock_guard lock(h.mu);
  h.messages.push_back({level, std::string(text)});
  h.any = true;
}

void begin_hold() { ++t_holds; }
void end_hold() noexcept {
  if (--t_holds == 0) tell_held();
}
Hold::Hold(End end) : end_(end) { begin_hold(); }
Hold::~Hold() {
  if (end_ == End::kTell)
    end_hold();
  else
    --t_holds;
}

void set_sink(void (*sink)(int, std::string_view)) { g_sink = sink ? sink : to_stderr; }

}  // namespace tp::probe
