// Why a graph was compiled: against the nearest graph that this process (or the disk cache) knows.
// One line at each compile after a line's first one; all of it as data for torch_pjrt.explain().
// Graphs that are interpreted are judged in the same way, without a line.
// Thread-safe; its lock is held around nothing that blocks or logs.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/lock_order.h"
#include "base/lru.h"
#include "client/computation_client.h"
#include "exec/sketch.h"

namespace tp::exec {

struct CompileEvent {
  uint64_t number = 0;  // 1 for the first of the process
  double at = 0;        // seconds since the epoch
  double seconds = 0;
  size_t nodes = 0, arguments = 0, outputs = 0;
  std::string key, nearest{};  // hex; nearest is empty where nothing was known
  std::string site;
  bool unexpected = false;   // the user's line had compiled before
  bool fresh = false;        // nothing like it was known: then it is not unexpected
  bool interpreted = false;  // no compile: a graph that was seen for the first time (exec/tiers.h)
  Rounds rounds{};           // steps without a sync between them
  std::vector<Reason> reasons{};
};

using RunsPtr = std::shared_ptr<std::atomic<int64_t>>;

class Explainer {
 public:
  // Words for ingredients, for messages: "2.13.0", "cpu plugin 1.2".
  void set_versions(std::string torch, std::string ours);
  // A compile has ended; `s` has its environment in words. Says one line where it was unexpected.
  // `miss`: why what the disk holds could not be used; told where nothing of this process explains
  // it.
  void compiled(Sketch s, size_t nodes, double seconds, std::vector<Reason> miss = {});
  // A graph that was never seen is interpreted: why it is none of those known. If it is compiled
  // later, that is why.
  void interpreted(Sketch s, size_t nodes);
  // A program came from the disk cache: no compile, but something to compare with.
  void remember(Sketch s);
  // How often the program of that key ran: the caller adds to it. Forgotten where as many programs
  // as kKeys ran since.
  static constexpr size_t kKeys = 16384;
  RunsPtr runs_of(const Hash128& key);
  // Ingredients in words, as CacheFile::words wants them.
  std::vector<std::pair<std::string, std::string>> words(const client::ComputationClient& c);

  std::vector<CompileEvent> events();
  // The lines that recorded ops whose name contains `op`, in the graphs known; most frequent first.
  std::vector<ir::LocationId> lines_of(std::string_view op);
  std::unordered_map<Hash128, int64_t> runs();
  void clear();

 private:
  const Sketch* nearest_locked(const Sketch& s);
  bool loud_locked(const std::string& site);
  void judge_locked(CompileEvent& e, const Sketch& s);
  void keep_locked(const CompileEvent& e);
  void judge_interpreted_locked();  // in their order, before anything else is judged or told
  std::string advice_locked(const CompileEvent& e);

  RankedMutex<LockRank::kExplainer> mu_;
  LruMap<Hash128, Sketch> known_{128};
  static constexpr size_t kSites = 4096;
  LruMap<std::string, int> sites_{kSites};     // compiles a line
  LruMap<std::string, int> reported_{kSites};  // what was told of a line
  LruMap<Hash128, RunsPtr> runs_{kKeys};
  std::deque<CompileEvent> events_;  // the newest 1,000
  LruMap<Hash128, CompileEvent> interpreted_{kSites};
  // Interpreted graphs that nobody asked about yet: judging takes longer than some of them do.
  std::deque<std::pair<CompileEvent, Sketch>> unjudged_;
  LruMap<std::string, bool> reported_miss_{kSites};
  uint64_t count_ = 0;
  std::string torch_, ours_;
};

// "; the graph holds about 40 rounds of train.py:12: ...", or empty.
std::string unsynced_text(const Rounds& r);

// "arg 3 f32[8,128] -> f32[8,131] (train.py:41); new op aten.clamp at loss.py:12; and 2 more"
std::string summary(const std::vector<Reason>& reasons);

}  // namespace tp::exec
