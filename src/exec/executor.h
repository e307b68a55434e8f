// Executor: pending values in, device buffers out. Collects leaves, builds the key, finds or
// compiles the program, runs it asynchronously. torch.compile, eager mode, capture and export enter
// here too: there is one executor, one key, one cache. Thread-safe; callers must not hold the GIL
// (a compile can take minutes).
//
// A failure changes nothing: compile and launch errors leave before any output exists; a program
// that fails while it runs keeps its pending values until somebody reads (`recover`).
#pragma once
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
#include "exec/donation.h"
#include "exec/explain.h"
#include "exec/fill.h"
#include "exec/launches.h"
#include "exec/numbers.h"
#include "exec/one_ops.h"
#include "exec/program_cache.h"
#include "ir/graph.h"

namespace tp::exec {

// What a full sync says about its tensors, so that some may be updated in place (exec/donation.h).
struct InPlace {
  std::vector<const void*> was;  // by root: what its tensor held before (exec::Overwrite), or null
  std::function<bool(const void*)> kept;  // has a live tensor, not among the roots, this buffer?
  // Called before the launch: takes the pending values out of their tensors, so that nobody can ask
  // for them until they are computed. False where a tensor was changed meanwhile.
  std::function<bool()> take;
  // References that the caller holds: this many to each root besides SyncRequest::roots (its
  // tensor's among them), and one to each of `held`.
  uint32_t root_references = 0;
  std::vector<const ir::Node*> held;
};

struct SyncRequest {
  std::vector<ir::Value> roots;                   // pending values to compute; duplicates are fine
  std::function<bool(const ir::Node&)> uploaded;  // fills that are a live tensor's birth value
  int device = 0;
  bool force_data = false;  // a full sync; a read passes false
  std::string where;        // the user's line, for messages
  InPlace in_place;         // left empty by reads: they never donate
};

struct SyncResult {
  std::vector<client::DataPtr> outputs;  // one a root
  Uploads uploads;                       // fills that went up, as parameters or as results
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
  // The buffer of `root`, one op, where its program was run before by sync() (exec/one_ops.h); else
  // null, and the caller has to go that way. Starts the program as sync() of a read would.
  client::DataPtr run_known(const ir::Value& root, int device);
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
  std::optional<Launches::Recovered> recover(const client::Data* data) {
    return launches_.recover(data);
  }

  ProgramCache& cache() { return cache_; }
  // All of them: the next syncs compile.
  void clear_programs() {
    one_ops_.clear();
    cache_.clear();
  }
  // Does anything still compile or run? Then the process must not tear the plugin down around it.
  bool busy();
  Explainer& explainer() { return explainer_; }

 private:
  struct Planned;
  Planned plan(SyncRequest& request);
  // The request's roots enter the program in this order.
  Planned build(SyncRequest& request, const std::vector<size_t>& order);
  Key key_of(const SyncRequest& request, const Planned& planned) const;
  // Makes a plan without a program one of its family's general program, where the family has one.
  bool generalize(SyncRequest& request, Planned& planned);
  // Everything of `planned` that needs the graph lock is done before this returns.
  ProgramPtr program_for(SyncRequest& request, Planned& planned);
  struct Job;
  ProgramPtr compile(const Job& job);
  // Starts the program; gives its outputs.
  std::vector<client::DataPtr> start(SyncRequest& request, Planned& planned,
                                     const ProgramPtr& program, SyncResult& result);
  std::vector<client::DataPtr> arguments(const Planned& planned, SyncResult& result, int device);

  std::string torch_revision_, revision_;
  DiskCache disk_;
  Explainer explainer_;
  ProgramCache cache_;  // after what its compiles use: it waits for them
  Launches launches_;
  OneOps one_ops_;
  Families families_;
  std::mutex mu_;  // guards all below
  LruMap<Hash128, std::shared_ptr<const GraphRecord>> records_{32};
  ProgramPtr last_;
};

}  // namespace tp::exec
