#include "probe/probe.h"

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

#include "base/flags.h"

namespace tp::probe {
namespace {

struct Tables {
  std::mutex mu;
  std::map<std::string, std::unique_ptr<Counter>, std::less<>> counters;
  std::map<std::string, std::unique_ptr<Timer>, std::less<>> timers;
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

void to_stderr(int, std::string_view text) {
  std::fprintf(stderr, "torch_pjrt: %.*s\n", static_cast<int>(text.size()), text.data());
}
std::atomic<void (*)(int, std::string_view)> g_sink{to_stderr};

}  // namespace

Counter& counter(std::string_view name) { return find_or_make(tables().counters, name); }
Timer& timer(std::string_view name) { return find_or_make(tables().timers, name); }

std::vector<CounterValue> counters() {
  std::lock_guard lock(tables().mu);
  std::vector<CounterValue> out;
  for (auto& [name, c] : tables().counters)
    if (c->value()) out.push_back({name, c->value()});
  return out;
}

std::vector<TimerValue> timers() {
  std::lock_guard lock(tables().mu);
  std::vector<TimerValue> out;
  for (auto& [name, t] : tables().timers)
    if (t->count()) out.push_back({name, t->count(), static_cast<double>(t->total_ns()) * 1e-9});
  return out;
}

void clear() {
  std::lock_guard lock(tables().mu);
  for (auto& [name, c] : tables().counters) c->reset();
  for (auto& [name, t] : tables().timers) t->reset();
}

void say(int level, std::string_view text) {
  if (level <= flag_int(Flag::kDebug)) g_sink.load()(level, text);
}
void set_sink(void (*sink)(int, std::string_view)) { g_sink = sink ? sink : to_stderr; }

}  // namespace tp::probe
