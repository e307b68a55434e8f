#include "exec/program_cache.h"

#include <new>
#include <thread>

#include "base/flags.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "probe/hold.h"
#include "probe/probe.h"

namespace tp::exec {
namespace {

Hash128 salted(Hash128 total, const std::vector<uint64_t>& signature) {
  return mix(total, hash_bytes(signature.data(), signature.size() * sizeof(uint64_t)));
}

void count_hit() {
  static probe::Counter& hits = probe::counter("CompileCacheHit");
  static probe::Counter& cached = probe::counter("CachedCompile");
  hits.add();
  cached.add();
}

void count_miss() {
  static probe::Counter& misses = probe::counter("CompileCacheMiss");
  misses.add();
}

void count_made(const Program& p) {
  static probe::Counter& uncached = probe::counter("UncachedCompile");
  static probe::Counter& cached = probe::counter("CachedCompile");
  (p.from_disk ? cached : uncached).add();
}

}  // namespace

void ProgramCache::detach(std::function<void()> f) { std::thread(std::move(f)).detach(); }

ProgramCache::~ProgramCache() {
  RankedLock lock(mu_);
  finished_.wait(lock, [&] { return flights_.empty(); });
}

ProgramPtr ProgramCache::find_locked(Hash128 total, const std::vector<uint64_t>& signature,
                                     bool* collides) {
  ProgramPtr* p = programs_.get(total);
  if (!p) return nullptr;
  if ((*p)->signature == signature) {
    (*p)->believed = true;
    return *p;
  }
  *collides = (*p)->collides = true;
  return nullptr;
}

ProgramPtr ProgramCache::find_known(const Key& key) {
  int64_t verify = flag_int(Flag::kVerify);
  if (verify >= 2) return nullptr;
  std::lock_guard lock(mu_);
  ProgramPtr* p = programs_.get(key.total);
  if (!p || (*p)->collides || (verify && !(*p)->believed)) return nullptr;
  count_hit();
  return *p;
}

ProgramPtr ProgramCache::find(const Key& key, const std::vector<uint64_t>& signature) {
  std::lock_guard lock(mu_);
  bool collides = false;
  ProgramPtr p = find_locked(key.total, signature, &collides);
  if (collides) p = find_locked(salted(key.total, signature), signature, &collides);
  if (p) count_hit();
  return p;
}

std::vector<ProgramPtr> ProgramCache::oldest() {
  std::lock_guard lock(mu_);
  std::vector<ProgramPtr> out;
  for (size_t n = (programs_.size() + 3) / 4; n > 0 && programs_.size() > 1; --n)
    out.push_back(programs_.pop());
  return out;
}

// Counting reads a file of as many lines, so it waits until the limit may be near. Programs are
// destroyed outside mu_; those that still run or are held elsewhere keep their mappings.
void ProgramCache::make_room() {
  constexpr size_t kMost = 2000;  // mappings of a large program
  std::lock_guard room(room_mu_);
  if (counted_.limit && ++since_ * kMost + counted_.used < counted_.limit / 2) return;
  counted_ = count_mappings_();
  since_ = 0;
  size_t dropped = 0;
  while (counted_.used > counted_.limit / 2 && counted_.limit) {
    size_t now = oldest().size(), before = counted_.used;
    dropped += now;
    counted_ = count_mappings_();
    if (now == 0 || counted_.used >= before) break;  // others took them
  }
  if (dropped == 0) return;
  probe::counter("ProgramsDroppedForMappings").add(static_cast<int64_t>(dropped));
  static std::once_flag reported;
  std::call_once(reported, [&] {
    probe::say(
        0, cat("dropped the ", dropped, " programs unused for longest: programs in memory ",
               "took half of the ", counted_.limit, " memory mappings that this system allows a ",
               "process\n  try: sysctl vm.max_map_count=", 4 * counted_.limit,
               ", or fewer different graphs (torch_pjrt.explain)"));
  });
}

// The compile itself, in whatever thread.
void ProgramCache::run_compile(Hash128 total, const FlightPtr& flight,
                               const std::function<ProgramPtr()>& compile) {
  ProgramPtr program;
  std::exception_ptr error;
  try {
    make_room();
    program = compile();
    count_made(*program);
  } catch (...) {
    error = std::current_exception();
  }
  // Notified under the lock: the destructor may return as soon as it is free.
  std::lock_guard lock(mu_);
  *flight = {true, program, std::move(error)};
  flights_.erase(total);
  finished_.notify_all();
  try {
    if (program) programs_.put(total, std::move(program));
  } catch (const std::bad_alloc&) {  // it is not kept, then
  }
}

// Flies in a thread of its own, or, where the system gives none, in this one: then Ctrl-C waits.
void ProgramCache::run_compile_alone(Hash128 total, const FlightPtr& flight,
                                     const std::function<ProgramPtr()>& compile) {
  try {
    return start_thread_([this, total, flight, compile] {
      probe::Hold until_finished(probe::Hold::End::kLeave);
      run_compile(total, flight, compile);
    });
  } catch (const std::exception&) {
  }
  run_compile(total, flight, compile);
}

// Waits for a flight's end; each that waits gets its error.
ProgramPtr ProgramCache::finish(RankedLock<LockRank::kPrograms>& lock, const FlightPtr& flight) {
  wait_interruptibly(lock, finished_, [&] { return flight->done; });
  if (flight->error) std::rethrow_exception(flight->error);
  return flight->program;
}

bool ProgramCache::compile_beside(const Key& key, const std::function<ProgramPtr()>& compile) {
  auto flight = std::make_shared<Flight>();
  {
    std::lock_guard lock(mu_);
    if (programs_.get(key.total) || !flights_.emplace(key.total, flight).second) return false;
  }
  count_miss();
  run_compile_alone(key.total, flight, compile);
  return true;
}

ProgramPtr ProgramCache::find_or_compile(const Key& key, const std::vector<uint64_t>& signature,
                                         const std::function<ProgramPtr()>& compile) {
  Hash128 total = key.total;
  probe::Hold hold;  // the compile's messages are told by who waits for it, without the lock
  RankedLock lock(mu_);
  for (;;) {
    bool collides = false;
    if (ProgramPtr p = find_locked(total, signature, &collides)) {
      count_hit();
      return p;
    }
    if (collides) {
      probe::counter("CompileKeyCollision").add();
      total = salted(total, signature);
      continue;
    }
    auto it = flights_.find(total);
    if (it == flights_.end()) break;
    FlightPtr other = it->second;
    if (ProgramPtr p = finish(lock, other); p->signature == signature) {
      count_hit();
      return p;
    }
  }
  auto flight = std::make_shared<Flight>();
  flights_.emplace(total, flight);
  count_miss();
  lock.unlock();
  if (hears_interrupts())
    run_compile_alone(total, flight, compile);
  else
    run_compile(total, flight, compile);
  lock.lock();
  return finish(lock, flight);
}

bool ProgramCache::compiling() {
  std::lock_guard lock(mu_);
  return !flights_.empty();
}

void ProgramCache::clear() {
  std::lock_guard lock(mu_);
  programs_.clear();
}

size_t ProgramCache::size() {
  std::lock_guard lock(mu_);
  return programs_.size();
}

std::vector<ProgramPtr> ProgramCache::all() {
  std::lock_guard lock(mu_);
  std::vector<ProgramPtr> out;
  for (auto& [key, program] : programs_) out.push_back(program);
  return out;
}

}  // namespace tp::exec
