// What happened when: a ring of spans on one clock, for timelines. A handful of events a sync, none
// an op. Write-only for the rooms; only bind/ and tests read. Thread-safe.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace tp::probe {

enum class Phase : unsigned char {
  kRecord,   // Python ran and recorded, between two syncs
  kPrepare,  // a sync's own work: walk, key, lookup, arguments
  kLower,
  kCompile,
  kExecute,  // from launch until the last output is ready
  kWait,     // somebody waited for a value
  kCount
};
std::string_view phase_name(Phase p);

struct Event {
  Phase phase;
  int64_t start_ns, end_ns;  // now_ns()
  uint64_t step;             // syncs before it
  uint64_t program;          // Hash128::hi of the key; 0: none
};

int64_t now_ns();  // since the first call in this process
void event(Phase phase, int64_t start_ns, int64_t end_ns, uint64_t program = 0);
// Begins another step; gives its number.
uint64_t next_step();
uint64_t step();
std::vector<Event> events();  // the newest 32,768, oldest first
void clear_events();

// Spans for a profiler outside (torch.profiler): begin gives what end gets. Installed once.
void set_span_hooks(void* (*begin)(const char* name), void (*end)(void*));
class Section {
 public:
  explicit Section(const char* name);
  ~Section();
  Section(const Section&) = delete;

 private:
  void* open_;
};

}  // namespace tp::probe
