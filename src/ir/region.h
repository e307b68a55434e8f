// Region: a function of values that a node runs inside the program: the body of a loop, a branch of
// a condition. Its nodes are its own: they hold no buffer and no value of the graph around it; what
// the function takes from there are parameters. Immutable; any thread may read.
//
// A node that carries regions has their ids among its attributes, so that hash and equality see
// what they compute, and the regions themselves as its payload. No row of the op table belongs to
// it: lower/control.h gives it its text, and nothing else can run it.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace tp::ir {

struct Region {
  Graph graph;                        // its leaves are parameters, whatever it feeds them by
  std::vector<uint32_t> parameters;   // by leaf of the graph, in first-use order: which parameter
  std::vector<Type> parameter_types;  // used or not
  std::vector<NodePtr> leaves;        // keeps the parameters' nodes
  Hash128 id;                         // of what it computes from its parameters
};
using RegionPtr = std::shared_ptr<const Region>;

// A region as part of a recording, and what it uses of the values around it.
struct Extracted {
  RegionPtr region;
  std::vector<Value> captured;  // its last parameters
};
// What `results` compute from the leaves `parameters`. All that does not depend on those stays
// outside, and is computed once: it is captured. `first`: the sequence of the first node that may
// depend on them. Takes graph_lock().
Extracted extract_region(std::span<const Value> results, std::span<const NodePtr> parameters,
                         uint64_t first);
// Does the value depend on one of those leaves?
bool depends_on(const Value& v, std::span<const NodePtr> leaves, uint64_t first);

// `torch_pjrt.loop`, operands: carried values, scanned ones, invariants, then what each region
// takes besides (captured values, offsets of random draws).
//   regions    body; or condition, body
//   results    the carried values, then one stack for each further result of the body
// `torch_pjrt.branch`, operands: predicate, operands, then what each region takes besides.
//   regions    where true, where false
const OpKind& loop_kind();
const OpKind& branch_kind();
// `torch_pjrt.manual`, operands: the values that are cut (each a constraint's result), then what
// the region takes besides, whole on each device. The region is what each device of a mesh computes
// of its parts; results are put together from its parts.
const OpKind& manual_kind();

// What a region of a node takes besides the node's own operands: `draws` offsets of random numbers,
// which a loop moves by `step` in each round, and then captured values.
struct Extra {
  int64_t draws = 0, step = 0, captured = 0;
};
struct LoopShape {
  int64_t length = -1;  // rounds; -1: while the condition holds
  bool reverse = false;
  int64_t carried = 0, scanned = 0, invariants = 0;
  std::vector<Extra> extra;  // by region
};

NodePtr make_loop(const LoopShape& shape, std::vector<RegionPtr> regions,
                  std::span<const Value> operands, std::span<const Type> types);
NodePtr make_branch(std::span<const Extra> extra, std::vector<RegionPtr> regions,
                    std::span<const Value> operands, std::span<const Type> types);

// `in` and `out`: shardings by text, of the operands that are cut and of the results. `replicas`:
// it is most of a program of its own, which each device runs on its parts as a replica; what is cut
// are leaves then.
NodePtr make_manual(const Extra& extra, const std::vector<std::string>& in,
                    const std::vector<std::string>& out, RegionPtr region,
                    std::span<const Value> operands, std::span<const Type> types,
                    bool replicas = false);
bool is_of_replicas(const Node& n);
struct ManualShape {
  std::vector<std::string> in, out;
};
ManualShape manual_shape(const Node& n);

// Of a node that carries regions; empty for any other.
std::span<const RegionPtr> regions_of(const Node& n);
LoopShape loop_shape(const Node& n);
std::vector<Extra> extra_of(const Node& n);

}  // namespace tp::ir
