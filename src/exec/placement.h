// Placement: where the arguments and results of a plan are, when its program runs on a mesh. A plan
// is partitioned where a leaf, a constraint or a result asked for is sharded: no mode is needed.
//
// Every parameter has the sharding of the buffer that we hold, never one that propagation would
// choose. A result that takes a buffer's place (a weight behind its update) keeps that buffer's
// sharding, so that the next step is the same program and may donate it; other results are open.
//
// Pure functions; under graph_lock().
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "client/computation_client.h"
#include "exec/donation.h"
#include "ir/graph.h"
#include "shard/sharding.h"
#include "shard/spelling.h"

namespace tp::exec {

// Where a result has to be: anywhere, or as `sharding` says (null: whole on every device).
struct Pin {
  bool pinned = false;
  shard::Ref sharding = nullptr;
};

// What a request says of places.
struct Layouts {
  std::vector<Pin> pins;                                  // by request root; none: all open
  std::unordered_map<const ir::Node*, shard::Ref> fills;  // of initial values that are sharded
};

struct Placement {
  std::vector<int> devices;            // by partition; empty: the program is of one device
  std::vector<shard::Ref> parameters;  // by buffer; null: whole on every device
  std::vector<Pin> outputs;            // by graph root
  std::vector<shard::Ref> constraints;
  bool replicas = false;  // each device runs the whole program, on its parts (ir::is_of_replicas)
  std::string text;       // for the key
  bool partitioned() const { return !devices.empty(); }
  shard::Form form() const;
};

// `donors` whose results have to be elsewhere are taken out. Throws kValue where values of
// different devices meet.
Placement place(const ir::Graph& g, const std::vector<int>& output_of, const Layouts& layouts,
                std::vector<Donor>& donors);

// What one device has of root i, where the program is of replicas; else the whole.
ir::Type result_type(const Placement& p, const ir::Graph& g, size_t i);

// For the client: what the compile of a program on a mesh needs.
void add_to(const Placement& p, size_t num_parameters, client::CompileRequest& request);

}  // namespace tp::exec
