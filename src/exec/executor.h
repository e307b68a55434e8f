// Executor: pending values in, device buffers out, in three steps that anybody may take: plan()
// walks the graph and makes its key, prepare() finds or compiles the program, run() starts it
// asynchronously. sync() takes all three; torch.compile, capture, eager mode and export enter here
// too: there is one executor, one key, one cache. Thread-safe; callers must not hold the GIL (a
// compile can take minutes).
//
// A failure changes nothing: compile and launch errors leave before any output exists; a program
// that fails while it runs keeps its pending values until somebody reads (`recover`).
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/lock_order.h"
#include "client/computation_client.h"
#include "exec/blame.h"
#include "exec/disk_cache.h"
#include "exec/donation.h"
#include "exec/explain.h"
#include "exec/fill.h"
#include "exec/interpreter.h"
#include "exec/kept_numbers.h"
#include "exec/launches.h"
#include "exec/numbers.h"
#include "exec/one_ops.h"
#include "exec/peel.h"
#include "exec/plan.h"
#include "exec/program_cache.h"
#include "exec/segments.h"
#include "exec/split.h"
#include "exec/tiers.h"
#include "ir/graph.h"

namespace tp::exec {

// A plan and its program. The plan is the one asked for, or that of its family's general program
// (exec/numbers.h), which has the same request roots. No program: all roots are leaves.
struct Prepared {
  PlanPtr plan;
  ProgramPtr program;
};

// One run of a program.
struct Launch {
  std::span<const client::DataPtr> arguments;  // by slot: buffers, then the packed numbers
  std::span<const uint8_t> donated = {};       // by argument: may be consumed; empty: none
  int device = 0;
  std::string where = {};  // the user's line, for messages
  // What the outputs are, so that they can be computed anew where the program fails while it runs;
  // empty: a failed output stays failed.
  std::vector<ir::Value> roots = {};
};

struct SyncResult {
  std::vector<client::DataPtr> outputs;  // one a request root
  Uploads uploads;
  // Arguments of one device that a program on a mesh needed on all of its devices, and where they
  // are now: who holds the first may take the second in its place, so that it is done once.
  std::vector<std::pair<client::DataPtr, client::DataPtr>> moved;
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

// `e` is of the op at its raised_by() in the plan's order.
[[noreturn]] void throw_host_failure(const Error& e, const Plan& plan);

// A graph as people read it: torch_pjrt.graph.last() and .of(). The texts of old programs are
// dropped.
struct GraphRecord {
  size_t nodes = 0;
  std::string text, module, dot;
  Hash128 key;
};

// Gives the client that programs run on. Asked at each use, before any lock is taken; may throw.
using ClientSource = std::function<client::ComputationClient&()>;

class Executor {
 public:
  Executor(ClientSource client, std::string torch_revision, std::string revision);

  // Walks and keys; compiles, runs and uploads nothing. Where there is no client it throws and
  // leaves the request as it was.
  PlanPtr plan(PlanRequest&& request);
  // Finds or compiles the plan's program; runs nothing.
  Prepared prepare(PlanPtr plan);
  // The program's arguments as the plan's leaves have them: their buffers, fills uploaded (those in
  // `uploads` are there already), numbers packed.
  std::vector<client::DataPtr> arguments(const Plan& plan, Uploads& uploads);
  // Forgets programs that have ended and waits while too many are in flight. Before a run.
  void throttle();
  // Starts the program; gives its outputs.
  std::vector<client::DataPtr> run(const ProgramPtr& program, Launch launch);

  // All three; or, where the program is not there, what exec/tiers.h says. `take` is called before
  // a launch that may donate: it takes the pending values out of their tensors, so that nobody can
  // ask for them until they are computed; false where a tensor was changed meanwhile. Throws
  // HostFailure where a host op raises at once.
  SyncResult sync(const PlanPtr& plan, const std::function<bool()>& take = {});

  // The buffer of `root`, one op, where its program was run before by sync() (exec/one_ops.h); else
  // null, and the caller has to go that way. Starts the program as sync() of a read would.
  client::DataPtr run_known(const ir::Value& root, int device);
  // Text, dot, module and key of a graph without running or compiling it.
  GraphRecord describe(PlanRequest request);
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

  client::ComputationClient& client() const { return client_(); }
  ProgramCache& cache() { return cache_; }
  // All of them: the next syncs compile.
  void clear_programs() {
    one_ops_.clear();
    kept_numbers_.clear();
    cache_.clear();
    tiers_.clear();
    std::lock_guard lock(mu_);
    splits_.clear();
  }
  // Does anything still compile or run? Then the process must not tear the plugin down around it.
  bool busy();
  Explainer& explainer() { return explainer_; }
  // Once, before the first sync; lives for the process.
  void interpret_with(Interpreter* i) { interpreter_ = i; }
  std::vector<InterpretedLine> interpreted() { return tiers_.lines(); }

 private:
  KeyContext context(client::ComputationClient& client) const;
  struct Job;
  // Whether the program is there (or none is needed).
  bool find(Prepared& prepared);
  // Makes it.
  void make(Prepared& prepared);
  // What its compile needs.
  std::shared_ptr<Job> job_of(const Plan& plan);
  // May programs call kernels of this process (ops/host/choice.h)?
  bool calls_back();
  ProgramPtr compile(const Job& job);
  bool is_stored(const Plan& plan);
  void compile_beside(const Plan& plan);
  // The plan's results where it is interpreted; nothing where it is to be a program.
  std::optional<SyncResult> interpret(const PlanPtr& plan);
  std::optional<SyncResult> interpret_any(const PlanPtr& plan, Tier tier);
  std::optional<SyncResult> interpret_glue(const Plan& plan, const Peeled& p);
  void explain_interpreted(const Plan& plan, int64_t graphs);
  SyncResult interpret_whole(const Plan& plan, const std::vector<const ir::Node*>& nodes);
  bool core_varies(const Plan& plan, const Peeled& p);
  Hash128 structure_of(const Plan& plan);
  // A result that has the roots that are leaves; and with those of the graph, too.
  SyncResult pass_leaves(const Plan& plan);
  SyncResult results_of(const Plan& plan, const std::vector<client::DataPtr>& outputs);
  // A graph that is several programs (exec/segments.h).
  struct KnownSplit {
    Split split;
    std::atomic<bool> prepared{false};  // its programs were there once
  };
  std::shared_ptr<KnownSplit> split_of(const Plan& plan);
  std::optional<SyncResult> run_split(const PlanPtr& plan, const std::function<bool()>& take);
  std::vector<client::DataPtr> run_segment(Segments& segments, size_t k,
                                           const std::vector<uint8_t>& may, SyncResult& result);
  SyncResult run_program(const Prepared& prepared, const std::function<bool()>& take);
  // By donor: may its buffer go now? Empty: none may. Asks `take` first.
  static std::vector<uint8_t> given(const Plan& plan, const std::function<bool()>& take);
  // The same by argument.
  std::vector<uint8_t> donations(const Plan& plan, const std::function<bool()>& take,
                                 size_t num_arguments);
  std::vector<client::DataPtr> run_fitting(const Program& program, const Launch& launch);
  std::vector<client::DataPtr> start(const Prepared& prepared, const std::function<bool()>& take,
                                     SyncResult& result);
  // The arguments as a program on a mesh wants them.
  void fit_all(const Program& program, std::vector<client::DataPtr>& args,
               std::vector<uint8_t>& donated, SyncResult& result);

  const ClientSource client_;
  const std::string torch_revision_, revision_;
  DiskCache disk_;
  Explainer explainer_;
  ProgramCache cache_;  // after what its compiles use: it waits for them
  Launches launches_;
  OneOps one_ops_;
  KeptNumbers kept_numbers_;  // of syncs; a replay keeps its own
  Families families_;
  RankedMutex<LockRank::kExecutor> mu_;  // guards all below
  LruMap<Hash128, std::shared_ptr<const GraphRecord>> records_{32};
  struct {
    Hash128 key;
    size_t nodes = 0;
  } last_;                                                    // the graph that ran last
  LruMap<Hash128, std::shared_ptr<KnownSplit>> splits_{512};  // by the whole graph's key
  Tiers tiers_;                                               // has a lock of its own
  Interpreter* interpreter_ = nullptr;
};

}  // namespace tp::exec
