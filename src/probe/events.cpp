#include "probe/events.h"

#include <atomic>
#include <chrono>
#include <mutex>

#include "base/forks.h"

namespace tp::probe {
namespace {

constexpr size_t kRoom = 32768;

struct Ring {
  TableMutex mu;
  std::vector<Event> events;
  size_t next = 0;  // where the next one goes once the ring is full
};
Ring& ring() {
  static auto* r = new Ring;
  return *r;
}

std::atomic<uint64_t> g_step{0};
std::atomic<void* (*)(const char*)> g_begin{nullptr};
std::atomic<void (*)(void*)> g_end{nullptr};

}  // namespace

std::string_view phase_name(Phase p) {
  static constexpr std::string_view kNames[] = {"record",  "prepare", "lower",
                                                "compile", "execute", "wait"};
  static_assert(std::size(kNames) == static_cast<size_t>(Phase::kCount));
  return kNames[static_cast<size_t>(p)];
}

int64_t now_ns() {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point kStart = Clock::now();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - kStart).count();
}

void event(Phase phase, int64_t start_ns, int64_t end_ns, uint64_t program) {
  Event e{phase, start_ns, end_ns, g_step.load(std::memory_order_relaxed), program};
  Ring& r = ring();
  std::lock_guard lock(r.mu);
  if (r.events.size() < kRoom) return r.events.push_back(e);
  r.events[r.next] = e;
  r.next = (r.next + 1) % kRoom;
}

uint64_t next_step() { return g_step.fetch_add(1, std::memory_order_relaxed) + 1; }
uint64_t step() { return g_step.load(std::memory_order_relaxed); }

std::vector<Event> events() {
  Ring& r = ring();
  std::lock_guard lock(r.mu);
  std::vector<Event> out(r.events.begin() + static_cast<std::ptrdiff_t>(r.next), r.events.end());
  out.insert(out.end(), r.events.begin(), r.events.begin() + static_cast<std::ptrdiff_t>(r.next));
  return out;
}

void clear_events() {
  Ring& r = ring();
  std::lock_guard lock(r.mu);
  r.events.clear();
  r.next = 0;
}

void set_span_hooks(void* (*begin)(const char*), void (*end)(void*)) {
  g_end = end;
  g_begin = begin;
}

Section::Section(const char* name) {
  auto* begin = g_begin.load(std::memory_order_acquire);
  open_ = begin ? begin(name) : nullptr;
}
Section::~Section() {
  if (open_) g_end.load(std::memory_order_acquire)(open_);
}

}  // namespace tp::probe
