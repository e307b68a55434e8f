// Tiers: which graphs are interpreted by the host's kernels (exec/interpreter.h) instead of being
// compiled, by TORCH_PJRT_TIERS:
//   off      none
//   small    graphs of a few whole-number ops that were never seen; and glue (exec/peel.h) around a
//            core that came before with other glue
//   varying  also whatever graph a line brings that compiled another one before
//   on       also every other graph that was never seen
// Occurrences are counted, never time, so that a run is the same each time. A small graph is
// compiled when it comes back. Of others the second one starts their compile behind it, and the
// third waits for that; but where a line brings different graphs the 8th does (of two), or the
// 32nd: a compile costs what a few hundred interpretations save, and a graph that comes among
// others may not come that often. Counts are those of the process. Thread-safe.
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/lru.h"

namespace tp::exec {

enum class Tier : unsigned char { kOff, kSmall, kVarying, kOn };
// Of the calling thread: what it set for itself, else what the flag says.
Tier tier_setting();
// Sets the calling thread's, by the flag's word; empty: the flag's own. Gives what was set before.
// Throws kValue for another word.
std::string exchange_thread_tier(const std::string& word);

// Graphs that a user's line had interpreted.
struct InterpretedLine {
  std::string site;
  size_t nodes = 0;               // of the newest
  int64_t graphs = 0;             // different ones
  int64_t times = 0, peeled = 0;  // of these, only the glue was
};

class Tiers {
 public:
  // What the graph of that key, at that line, comes to. `seen`: how often it was interpreted, at
  // most kMostSeen. `needed`: of how many the last starts its compile. `graphs`: different ones of
  // the line, this one among them.
  struct Count {
    int seen, needed;
    int64_t graphs;
  };
  static constexpr int kMostSeen = 32;
  Count count(const Hash128& key, const std::string& site);
  int seen(const Hash128& key);
  // It was, now; `peeled`: its glue.
  void note(const Hash128& key, const std::string& site, size_t nodes, bool peeled);
  // A graph of the line is about to be compiled. Whether that was so before.
  bool compiled_before(const std::string& site);
  void compiles(const std::string& site);
  // Did the core of that structure come with other glue before? `learn`: remember this one.
  bool varies(const Hash128& core, const Hash128& graph, bool learn);
  std::vector<InterpretedLine> lines();
  void clear();  // all but what lines() tells

 private:
  struct Core {
    Hash128 graph;
    bool varies = false;
  };
  static constexpr size_t kKeys = 16384, kCores = 2048, kSites = 4096;
  std::mutex mu_;  // guards all below
  LruMap<Hash128, int> seen_{kKeys};
  LruMap<Hash128, Core> cores_{kCores};
  LruMap<std::string, bool> compiled_{kSites};
  LruMap<std::string, InterpretedLine> lines_{kSites};
};

}  // namespace tp::exec
