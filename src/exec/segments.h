// Segments: where a long graph is cut into programs that run one behind the other.
//
// XLA's compile times grow faster than graphs do: a loop that was recorded without a sync is one
// huge program, and a chain of elementwise ops each value of which is kept is computed anew for
// each. A graph that repeats itself is therefore cut between its rounds, so that all rounds are one
// program; and a chain with kept values is cut where its recomputation has grown.
//
// What is never cut: a graph that does not repeat, as a model's step; and layers of a model, which
// repeat, but each with weights of its own.
//
// Pure functions. Where they take a graph, the caller holds graph_lock() and the nodes have their
// slots in it.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace tp::exec {

struct Split {
  // By slot, ascending along operands: which segment an interior node belongs to. Empty: the graph
  // is one program.
  std::vector<uint32_t> segment_of;
  uint32_t num_segments = 1;
  uint32_t rounds = 0;       // of the loop that was recorded; 0: there was none
  ir::LocationId where = 0;  // a line of it
};

// `least_nodes`: smaller graphs are cut for what they recompute only; 0: nothing is ever cut.
Split split_graph(const ir::Graph& g, size_t least_nodes);

// A loop whose newest round is still being recorded.
struct Loop {
  uint32_t rounds = 0;  // 0: the graph is no loop
  // The sequence that the last node of the round will have.
  uint64_t round_ends = 0;
  ir::LocationId where = 0;
};
Loop loop_of(const ir::Graph& g);

}  // namespace tp::exec
