// General programs. A number that selects (a slice's start, an eps, an exponent) is a constant of
// its program at first: constants make the best code. When a graph comes that differs from a known
// one in such numbers only, those that differ become inputs of one general program, which serves
// every value from then on. So a loop over `y[i]` compiles twice, not once an i.
//
// A family is all graphs of one structure: equal but for such numbers (ops/core/numbers.h).
#pragma once
#include <mutex>
#include <vector>

#include "base/lock_order.h"
#include "base/lru.h"
#include "ir/graph.h"
#include "lower/lower.h"
#include "ops/core/row.h"

namespace tp::exec {

// A graph's signature without its numbers, and the numbers.
struct Numbers {
  std::vector<uint64_t> structure;
  std::vector<ops::Number> values;
  std::vector<uint32_t> first;  // by slot, and one past the last: where a node's numbers begin
};
// The caller holds graph_lock().
Numbers split_numbers(const ir::Graph& g);

// Places of `roots` by the hash of what they are without their numbers, ties in the caller's
// order: another slice start must not change the order in which roots enter the program. `g` has
// the roots' nodes. The caller holds graph_lock().
std::vector<size_t> structural_order(const std::vector<ir::Value>& roots, const ir::Graph& g);

// Which numbers are inputs, as lower() wants it, their packed places counted behind the graph's own
// numbers; and the signature of that program.
struct General {
  lower::Inputs inputs;
  std::vector<ops::Number> values;  // by number
  std::vector<uint64_t> signature;
};
General make_general(const ir::Graph& g, Numbers numbers, const std::vector<bool>& varies);

// The families seen so far. Thread-safe.
class Families {
 public:
  // By number: is it an input from now on? Empty for the first graph of a family and for others
  // with its very numbers: they are programs of their own.
  std::vector<bool> varying(const Numbers& numbers);

 private:
  struct Family {
    std::vector<ops::Number> first;
    std::vector<bool> varies;
  };
  RankedMutex<LockRank::kFamilies> mu_;
  LruMap<Hash128, Family> families_{2048};
};

}  // namespace tp::exec
