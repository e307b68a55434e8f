// Plan: what a program for some pending values is, before it is found, compiled or run: the graph,
// its key, which leaf feeds which parameter, which parameters it may overwrite. Immutable, and it
// owns its nodes, so that anybody may hold one: sync() runs it at once, torch.compile and capture
// prepare it and run its program later with other arguments.
//
// Pure functions; the caller holds graph_lock() where a function says so. A plan may be read by any
// thread, but for node slots (ir/node.h), which belong to whoever holds the graph lock.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/donation.h"
#include "exec/key.h"
#include "exec/numbers.h"
#include "exec/placement.h"
#include "ir/graph.h"

namespace tp::exec {

struct PlanRequest {
  std::vector<ir::Value> roots;                   // pending values to compute; duplicates are fine
  std::function<bool(const ir::Node&)> uploaded;  // fills that are a live tensor's initial value
  int device = 0;
  bool force_data = false;  // a full sync; a read passes false
  std::string where;        // the user's line, for messages
  // What a full sync says about its tensors, so that some may be updated in place
  // (exec/donation.h). Left empty by reads: they never donate.
  std::vector<const void*>
      previous;  // by root: what its tensor held before (exec::Overwrite), or null
  std::function<bool(const void*)> kept;  // has a live tensor, not among the roots, this buffer?
  std::vector<ir::NodePtr> held;          // leaves that the caller lets go of with this request
  bool straight = false;                  // always a program, never interpreted (exec/tiers.h)
  bool part = false;                      // one op of a graph that is interpreted
  Layouts layouts;                        // of tensors that are sharded
  // Of a segment (exec/segments.h): the rounds of the loop that it is from, and a line of it.
  uint32_t rounds = 0;
  ir::LocationId rounds_at = 0;
};

// What keys hold besides the graph.
struct KeyContext {
  Hash128 environment;
  std::string_view torch_revision, revision;
};

struct Plan {
  ir::Graph graph;  // its leaves are the program's inputs, by slot
  Key key;
  std::vector<int> output_of;     // by request root: its place among graph.roots; -1 for a leaf
  std::vector<ir::Value> passed;  // by request root: the leaf, where it is one
  std::vector<Donor> donors;
  std::optional<General> general;  // where it is a general program's; signature and key say so too
  // References by slot that this plan holds, see exec/donation.h; empty without donors.
  std::vector<uint32_t> known;
  std::vector<ir::NodePtr> held;
  std::vector<ir::Value> replaced;  // the roots asked for, where others had to stand in for them
  int device = 0;
  bool force_data = false;
  std::string where;
  std::shared_ptr<const Plan> base;  // of a general program's plan: the one that it was made from
  bool straight = false, part = false;  // PlanRequest's
  Layouts layouts;                      // the request's
  uint32_t rounds = 0;                  // likewise
  ir::LocationId rounds_at = 0;
  Placement placement;  // of a program that runs on a mesh

  // Request root i.
  const ir::Value& root(size_t i) const {
    return output_of[i] < 0 ? passed[i] : graph.roots[static_cast<size_t>(output_of[i])];
  }
};
using PlanPtr = std::shared_ptr<const Plan>;

// Under graph_lock(). Roots enter the program by hash, ties in the caller's order (that of
// creation). Creation order alone would not do: optimizer state is created after the first step's
// gradients and before the second's, and the two steps have to be one program.
PlanPtr make_plan(PlanRequest request, std::vector<ir::Value> replaced, const KeyContext& context);

// Under graph_lock(). The plan of a family's general program (exec/numbers.h), or null where this
// graph is to be a program of its own.
PlanPtr make_general_plan(const PlanPtr& plan, Families& families, const KeyContext& context);

// Under graph_lock(), the slots in place. Of its program: two plans of equal signatures run one.
std::vector<uint64_t> signature_of(const Plan& plan);

// Under graph_lock(). Gives the plan's nodes their slots again, after another graph was built of
// them.
void number_slots(const Plan& plan);

}  // namespace tp::exec
