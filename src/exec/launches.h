// Launches: programs in flight, and what the failed ones should have computed. A failed program's
// pending values are kept until its outputs go, so that a read can compute them anew.
//
// A program that was given buffers to overwrite (exec/donation.h) and then failed has destroyed
// them: values that need such a buffer are lost, and each read of one raises.
//
// Thread-safe. Never holds a reference to an output: buffers go when their tensors do.
#pragma once
#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/lock_order.h"
#include "client/computation_client.h"
#include "exec/blame.h"
#include "ir/graph.h"

namespace tp::exec {

// The nodes that depend on the one at place `at` of the program with these roots. Takes
// graph_lock().
std::unordered_set<const ir::Node*> dependents(const std::vector<ir::Value>& roots, int64_t at);

// `e`, for whoever needs bytes that are gone; `lost` says which.
Error lost_error(const Error& e, const std::string& lost);
// The error of a launch. Where arguments are gone (with a program that failed, or with this one: a
// plugin may fail behind taking its donors) it is that of a lost value.
Error launch_error(const Error& e, std::span<const client::DataPtr> arguments);

class Launches {
 public:
  // `outputs` are those of a program just started, the values of `roots`; `donated` are the buffers
  // that it was given to overwrite. `consumed` are those handles: a plugin may block whoever lets
  // go of one before the program has ended.
  void add(std::vector<ir::Value> roots, const std::vector<client::DataPtr>& outputs,
           std::vector<ir::Type> donated, Blame blame, std::vector<client::DataPtr> consumed = {});
  // Forgets finished programs and, above `keep`, waits for the oldest ones.
  void retire(size_t keep);
  // Blocks until all that was added so far is over, whichever thread looks after it.
  void wait();
  bool in_flight();  // does any program still run?
  bool any_failed() const { return any_failed_.load(std::memory_order_relaxed); }
  // Is an operand of `n` a buffer that a failed program should have filled?
  bool reads_failed(const ir::Node& n);

  struct Recovered {
    // What the failed program should have computed; empty where that is lost, or was a replay.
    ir::Value value;
    bool reported;      // its error was raised, at this output or another; or is not this output's
    std::string lost;   // of a lost value: what was destroyed
    bool concerned;     // false: the failure is a host op's that this output does not need
    std::string blame;  // which program it was, for messages
  };
  // Of a buffer that a failed program should have filled; waits for what is in flight.
  std::optional<Recovered> recover(const client::Data* data);
  // Replaces each leaf over a failed program's buffer by the value it should have held, where there
  // is one; whether there was any. Under graph_lock().
  bool revive(std::vector<ir::Value>& roots);

 private:
  struct Launch {
    uint64_t number = 0;  // ascending
    std::vector<ir::Value> roots;
    std::vector<std::weak_ptr<client::Data>> outputs;
    std::shared_ptr<const client::Completion> end;
    std::vector<ir::Type> donated;
    Blame blame;
    std::vector<client::DataPtr> consumed;
  };
  struct Failed {
    std::weak_ptr<client::Data> output;
    ir::Value value;
    std::shared_ptr<bool> reported;  // one for all outputs of a launch that the failure concerns
    std::string lost;
    bool concerned;
    std::string blame;
  };
  class Leaving;
  void retire(size_t keep, uint64_t before);
  void record_failure(Launch& l, const Error& e);
  bool is_lost(const ir::Value& root) const;

  RankedMutex<LockRank::kLaunches> mu_;  // guards all below
  std::list<Launch> in_flight_;          // by number
  std::list<Launch> leaving_;  // taken from in_flight_ by a thread that waits for their end
  uint64_t next_ = 1;          // number of the next launch
  std::condition_variable left_;
  std::unordered_map<const client::Data*, Failed> failed_;
  std::atomic<bool> any_failed_{false};  // written under mu_; false: failed_ is empty
};

}  // namespace tp::exec
