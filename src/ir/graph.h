// Graph: the nodes that a set of root values needs, in post-order, with every leaf's place among
// the program's parameters decided. Built under the graph lock (one at a time: nodes carry walk
// scratch).
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/lock_order.h"
#include "ir/node.h"

namespace tp::ir {

// What a leaf becomes in the program.
enum class Feed : uint8_t {
  kBuffer,   // parameter: a device buffer (DeviceData, or a fill that is some live tensor's initial
             // value)
  kInteger,  // element `index` of the packed s64 parameter (bool and int numbers)
  kReal,     // element `index` of the packed f64 parameter (a complex number takes two)
};

struct LeafUse {
  const Node* node;
  Feed feed;
  uint32_t index;  // parameter number among buffers, or position in the packed vector
};

struct Graph {
  std::vector<const Node*> order;  // operands before users; leaves included
  std::vector<Value> roots;        // distinct or not, in the caller's order
  std::vector<LeafUse> leaves;     // in first-use order: the parameter sequence
  uint32_t num_buffers = 0, num_integers = 0, num_reals = 0;
  // For every node in order: its operands' positions and, for a leaf, its feed. Two graphs that
  // differ only in which buffer feeds which operand have equal root hashes and different sequences.
  std::vector<uint32_t> sequence;
  size_t num_nodes() const { return order.size(); }
  // Program parameters: buffers first, then (where used) the s64 vector, then the f64 vector.
  uint32_t num_parameters() const { return num_buffers + (num_integers > 0) + (num_reals > 0); }
};

using GraphMutex = RankedMutex<LockRank::kGraph>;
GraphMutex& graph_lock();

// `uploaded(fill)` says whether a fill leaf becomes a parameter. The roots keep the nodes alive.
// The caller holds graph_lock().
Graph build_graph(std::vector<Value> roots, const std::function<bool(const Node&)>& uploaded);

// Exact structure as words: op, attrs, operand positions, types, feeds, roots. Two graphs with
// equal signatures run the same program. The caller holds graph_lock(), and the nodes have their
// slots in this graph.
std::vector<uint64_t> signature(const Graph& g);

// Throws kInternal, naming the node, where an invariant of the graph is broken.
void verify(const Graph& g);

// One line a node: `%3 = aten::add.Tensor(%1, %2) alpha=%2 : f32[4,8]`.
// With lines: the user's line and scope behind each op, as a comment.
enum class Lines : bool { kNo, kYes };
std::string dump_text(const Graph& g, Lines lines = Lines::kNo);
std::string dump_dot(const Graph& g);

}  // namespace tp::ir
