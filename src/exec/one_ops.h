// OneOps: programs of one op over buffers and numbers, found by the op's node alone. Eager mode
// runs one for every op; walking a graph, folding a key and comparing signatures anew each time
// would cost more than the program. The executor teaches what it planned the long way; keys,
// programs and their cache are the same.
//
// An entry is believed where kind, attributes, operands' kinds and types, and which operands are
// one node, are equal: all that a signature of such a graph holds. It does not keep its program
// alive, and now and then sends its caller the long way, so that the program cache knows what is in
// use. Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/lock_order.h"
#include "base/lru.h"
#include "client/computation_client.h"
#include "exec/explain.h"
#include "exec/fill.h"
#include "exec/program_cache.h"
#include "ir/graph.h"

namespace tp::exec {

class OneOps {
 public:
  static constexpr size_t kMostArguments = 8;
  struct Found {
    ProgramPtr program;  // null: unknown
    size_t count = 0;
    std::array<client::DataPtr, kMostArguments> slots;
    RunsPtr runs;  // Explainer's
    std::span<const client::DataPtr> arguments() const { return {slots.data(), count}; }
  };
  // The program that computes `root` alone, and its arguments.
  Found find(client::ComputationClient& client, const ir::Value& root, int device);
  // `graph` is that of `root` alone, `program` what it was compiled to. Does nothing where the
  // graph is more than one op over buffers and numbers.
  void learn(const ir::Graph& graph, int device, const ProgramPtr& program, RunsPtr runs);
  void clear();

 private:
  struct Operand {
    const ir::OpKind* kind;
    ir::Type type;
    size_t first;  // the first operand that is the same node
    friend bool operator==(const Operand&, const Operand&) = default;
  };
  struct Feed {
    size_t operand;
    ir::Feed feed;
    uint32_t index;
  };
  struct Entry {
    const ir::OpKind* kind;
    std::vector<uint64_t> attrs;
    std::vector<Operand> operands;
    std::vector<Feed> feeds;
    uint32_t num_buffers;
    std::weak_ptr<const Program> program;
    RunsPtr runs;
    // Of the last run: most ops come with the same numbers again.
    Numbers64 numbers;
    client::DataPtr integers, reals;
    uint32_t uses = 0;
  };
  static Operand operand_of(const ir::Node& n, size_t i);
  static Hash128 key_of(const ir::Value& root, int device);
  static bool fits(const Entry& e, const ir::Node& n);
  static void put_arguments(client::ComputationClient& client, Entry& e, const ir::Node& n,
                            int device, Found& to);

  RankedMutex<LockRank::kOneOps> mu_;
  LruMap<Hash128, std::unique_ptr<Entry>> entries_{1024};  // under mu_
};

}  // namespace tp::exec
