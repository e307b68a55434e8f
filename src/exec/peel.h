// Peeling: the small whole-number ops at both ends of a graph ("glue": token ids, masks, positions,
// stopping criteria), which the host computes, apart from the core between them. Where glue changes
// its shapes from step to step and the core does not, the core is one program for all of them.
//
//   before   glue that needs no value of the core
//   core     all else; takes values of `before` as parameters
//   after    glue that no op of the core needs
//
// Pure functions; any thread.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "client/computation_client.h"
#include "ir/graph.h"

namespace tp::exec {

struct Peeled {
  // Interior nodes, operands before users.
  std::vector<const ir::Node*> before, core, after;
  std::vector<ir::Value> given;  // values of `before` that the core takes
  std::vector<ir::Value> taken;  // values of the core that `after` takes
};
Peeled peel(const ir::Graph& g, const std::function<bool(const ir::Node&)>& is_glue);

// What glue may be: all it reads and gives are whole numbers or bools, at most `most` elements
// each, so that its result has the same bits wherever it is computed.
bool is_whole_numbers(const ir::Node& n, int64_t most);

// The core's values anew, with `buffers[i]` in the place of given[i] (none: buffers to come): first
// the plan's roots among them, in the graph's order, then `taken`.
struct Core {
  std::vector<ir::Value> roots;
  std::vector<size_t> root_of;  // by root of the graph that is the core's: its place in the graph
};
Core make_core(const ir::Graph& g, const Peeled& p, std::span<const client::DataPtr> buffers);

// Which interior nodes, and the leaves they read, stand in `nodes`: what the host has to compute.
std::vector<const ir::Node*> with_leaves(const std::vector<const ir::Node*>& nodes);

}  // namespace tp::exec
