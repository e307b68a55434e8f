// Executor: pending values in, device buffers out. Collects leaves, builds the key, finds or
// compiles the program, runs it asynchronously. torch.compile, eager mode, capture and export enter
// here too: there is one executor, one key, one cache. Thread-safe; callers must not hold the GIL
// (a compile can take minutes).
//
// A failure changes nothing: compile and launch errors leave before any output exists; a program
// that fails while it runs keeps its pending values until somebody reads (`recover`).
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "client/computation_client.h"
#include "exec/blame.h"
#include "exec/disk_cache.h"
#include "exec/explain.h"
#include "exec/program_cache.h"
#include "ir/graph.h"

namespace tp::exec {

struct SyncRequest {
  std::vector<ir::Value> roots;                   // pending values to compute; duplicates are fine
  std::function<bool(const ir::Node&)> uploaded;  // fills that are a live tensor's birth value
  int device = 0;
  bool force_data = false;  // a full sync; a read passes false
  std::string where;        // the user's line, for messages
};

struct SyncResult {
  std::vector<client::DataPtr> outputs;                          // one a root
  std::unordered_map<const ir::Node*, client::DataPtr> uploads;  // fills that went up as parameters
};

// A host op of the program raised while it was launched. The roots (of the request) that depend on
// it have no value; the others do not know of it.
class HostFailure : public Error {
 public:
  HostFailure(const Error& e, std::vector<size_t> roots) : Error(e), roots_(std::move(roots)) {}
  const std::vector<size_t>& roots() const { return roots_; }

 private:
  std::vector<size_t> roots_;
};

// A graph as people read it: torch_pjrt.graph.last() and .of(). The texts of old programs are
// dropped.
struct GraphRecord {
  size_t nodes = 0;
  std::string text, module, dot;
  Hash128 key;
};

class Executor {
 public:
  Executor(std::string torch_revision, std::string revision);

  // Throws HostFailure where a host op raises at once.
  SyncResult sync(SyncRequest request);
  // Text, dot, module and key of the graph of `request` without running or compiling it.
  GraphRecord describe(SyncRequest request);
  // The graph of the last sync that ran a program; nodes == 0 before the first.
  GraphRecord last();
  // The graph of a compiled program by the beginning of its key; nodes == 0 where it is gone.
  GraphRecord record(std::string_view key);

  // Blocks until everything launched so far has finished. Errors stay with their outputs.
  void wait();
  // The pending value that a failed program should have computed for this buffer, if it is one of
  // those.
  struct Recovered {
    ir::Value value;
    bool concerned;     // false: the failure is a host op's that this output does not need
    std::string blame;  // which program it was, for messages
    bool told;  // its error has been raised, at this output or another; or is not this output's
  };
  std::optional<Recovered> recover(const client::Data* data);

  ProgramCache& cache() { return cache_; }
  // Does anything still compile or run? Then the process must not tear the plugin down around it.
  bool busy();
  Explainer& explainer() { return explainer_; }

 private:
  struct Launch {
    std::vector<ir::Value> roots;
    std::vector<client::DataPtr> outputs;
    Blame blame;
  };
  struct Planned;
  Planned plan(SyncRequest& request);
  // Roots with each buffer of a failed program replaced by the value it should have held. Under
  // graph_lock().
  void revive(std::vector<ir::Value>& roots);
  // Everything of `planned` that needs the graph lock is done before this returns.
  ProgramPtr program_for(SyncRequest& request, Planned& planned);
  struct Job;
  ProgramPtr compile(const Job& job);
  std::vector<client::DataPtr> start(const SyncRequest& request, const Planned& planned,
                                     const Program& program, SyncResult& result);
  std::vector<client::DataPtr> arguments(const Planned& planned, SyncResult& result, int device);
  void launched(std::vector<ir::Value> roots, std::vector<client::DataPtr> outputs,
                ProgramPtr program, Blame blame);
  void retire(size_t keep);
  void bury(const Launch& l, const Error& e);

  std::string torch_revision_, revision_;
  DiskCache disk_;
  Explainer explainer_;
  ProgramCache cache_;  // after what its compiles use: it waits for them
  std::mutex mu_;       // guards all below
  std::deque<Launch> launches_;
  size_t leaving_ = 0;  // taken from launches_ by a thread that waits for their end
  std::condition_variable left_;
  struct Failed {
    std::weak_ptr<client::Data> output;
    ir::Value value;
    std::shared_ptr<bool> told;  // one for all outputs of a launch that the failure concerns
    bool concerned;
    std::string blame;
  };
  std::unordered_map<const client::Data*, Failed> failed_;
  LruMap<Hash128, std::shared_ptr<const GraphRecord>> records_{32};
  ProgramPtr last_;
};

}  // namespace tp::exec
