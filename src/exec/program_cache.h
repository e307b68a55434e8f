// Programs by key: an LRU in memory with single flight: however many threads miss on one key, one
// compiles and the others wait for it (and get its error). Thread-safe.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "base/lru.h"
#include "client/computation_client.h"
#include "exec/key.h"

namespace tp::exec {

// A compiled program and what it was compiled from.
struct Program {
  Key key;
  client::ExecutablePtr executable;
  std::vector<uint64_t> signature;  // ir::Graph::signature: compared before a hit is believed
  size_t nodes = 0;
  double compile_seconds = 0;  // or what loading took
  bool from_disk = false;
};
using ProgramPtr = std::shared_ptr<const Program>;

class ProgramCache {
 public:
  explicit ProgramCache(size_t capacity) : programs_(capacity) {}

  // The program under `key` whose signature is equal, or the one that `compile` makes. A program of
  // equal key and other structure (a hash collision) is never given: it is compiled under a key of
  // its own.
  ProgramPtr find_or_compile(const Key& key, const std::vector<uint64_t>& signature,
                             const std::function<ProgramPtr()>& compile);
  ProgramPtr find(const Key& key, const std::vector<uint64_t>& signature);
  void clear();
  size_t size();
  std::vector<ProgramPtr> all();  // most recently used first

 private:
  ProgramPtr find_locked(Hash128 total, const std::vector<uint64_t>& signature, bool* collides);
  std::mutex mu_;
  std::condition_variable compiled_;
  LruMap<Hash128, ProgramPtr> programs_;
  std::unordered_set<Hash128> compiling_;
};

}  // namespace tp::exec
