// Replay: a recorded graph as a function of buffers. It was planned and compiled once, over leaves
// that stand for its arguments; a call hands other buffers to the same program. Nothing here walks
// a node: a call costs its arguments. The program is held, so that an eviction from the cache never
// records again.
//
// Immutable but for the uploaded numbers, which have a lock of their own: any thread may call.
#pragma once
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/lock_order.h"
#include "exec/executor.h"
#include "exec/fill.h"

namespace tp::exec {

// What the leaves of a recording stand for; others are constants of it.
struct LeafRoles {
  std::unordered_map<const ir::Node*, uint32_t> arguments;  // leaf -> number of the argument
  std::unordered_set<const ir::Node*> seeds;                // a generator's seed
  std::unordered_map<const ir::Node*, int64_t> offsets;     // its offset: draws since the first
  int64_t draws = 0;                                        // of a whole call
  std::vector<ir::NodePtr> drawn;                           // keeps seeds and offsets alive

  // A random op took these number leaves, `since` draws after the first.
  void drew(const ir::NodePtr& seed, const ir::NodePtr& offset, int64_t since) {
    seeds.insert(seed.get());
    offsets[offset.get()] = since;
    drawn.push_back(seed);
    drawn.push_back(offset);
  }
};

class Replay {
 public:
  // `plan` is the recording's; compiles it. Constants (buffers, and fills that are results) are
  // uploaded here.
  Replay(Executor& executor, PlanPtr plan, const LeafRoles& roles);

  struct Call {
    std::span<const client::DataPtr> arguments;
    std::span<const uint8_t> may_donate = {};  // by argument: nobody else holds the buffer
    int64_t seed = 0, offset = 0;
    std::string where = {};
  };
  // The values of the plan's request roots.
  std::vector<client::DataPtr> run(const Call& call) const;

  int64_t draws() const { return draws_; }
  // Which arguments the program may overwrite, ascending.
  std::span<const uint32_t> donors() const { return donors_; }
  const ProgramPtr& program() const { return program_; }  // null: all results are arguments or held

 private:
  // A buffer: an argument's, or one that is held.
  struct Source {
    int64_t argument = -1;
    client::DataPtr held;
    const client::DataPtr& of(std::span<const client::DataPtr> arguments) const {
      return argument < 0 ? held : arguments[static_cast<size_t>(argument)];
    }
  };
  struct Result {
    int64_t output = -1;  // of the program, or
    Source source;
  };
  Source source_of(const ir::Node& leaf, const LeafRoles& roles, int device) const;
  void put_numbers(const Call& call, std::vector<client::DataPtr>& to) const;

  Executor& executor_;
  ProgramPtr program_;
  int device_;
  std::vector<Source> buffers_;                             // by slot
  std::vector<Result> results_;                             // by request root
  std::vector<uint32_t> donors_;                            // arguments
  std::vector<std::pair<uint32_t, uint32_t>> donor_slots_;  // slot, argument
  Numbers64 numbers_;
  std::vector<uint32_t> seeds_;                        // places among the integers
  std::vector<std::pair<uint32_t, int64_t>> offsets_;  // place, draws since the first
  int64_t draws_ = 0;
  mutable RankedMutex<LockRank::kReplay> mu_;  // guards all below
  mutable client::DataPtr integers_, reals_;   // uploaded once where no call changes them
};

}  // namespace tp::exec
