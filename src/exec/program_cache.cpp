#include "exec/program_cache.h"

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

}  // namespace

ProgramPtr ProgramCache::find_locked(Hash128 total, const std::vector<uint64_t>& signature,
                                     bool* collides) {
  ProgramPtr* p = programs_.get(total);
  if (!p) return nullptr;
  if ((*p)->signature == signature) return *p;
  *collides = true;
  return nullptr;
}

ProgramPtr ProgramCache::find(const Key& key, const std::vector<uint64_t>& signature) {
  std::lock_guard lock(mu_);
  bool collides = false;
  ProgramPtr p = find_locked(key.total, signature, &collides);
  if (collides) p = find_locked(salted(key.total, signature), signature, &collides);
  if (p) count_hit();
  return p;
}

ProgramPtr ProgramCache::find_or_compile(const Key& key, const std::vector<uint64_t>& signature,
                                         const std::function<ProgramPtr()>& compile) {
  static probe::Counter& misses = probe::counter("CompileCacheMiss");
  static probe::Counter& uncached = probe::counter("UncachedCompile");
  static probe::Counter& cached = probe::counter("CachedCompile");
  Hash128 total = key.total;
  {
    std::unique_lock lock(mu_);
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
      if (!compiling_.contains(total)) break;
      compiled_.wait(lock);
    }
    compiling_.insert(total);
  }
  misses.add();
  auto finish = [&](ProgramPtr p) {
    std::lock_guard lock(mu_);
    compiling_.erase(total);
    if (p) programs_.put(total, p);
    compiled_.notify_all();
  };
  ProgramPtr p;
  try {
    p = compile();
  } catch (...) {
    finish(nullptr);  // the waiting threads try for themselves, and report their own error
    throw;
  }
  (p->from_disk ? cached : uncached).add();
  finish(p);
  return p;
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
