// Graph -> StableHLO module text. Walks the graph in order and asks each node's row; nothing
// op-specific.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "hlo/builder.h"
#include "ir/graph.h"
#include "shard/spelling.h"

namespace tp::lower {

struct Module {
  std::string text;
  int statements = 0;
};

// Which numbers of the graph's nodes (ops/core/numbers.h) are inputs of the program, packed behind
// the graph's own numbers.
struct Inputs {
  std::vector<uint32_t> first;  // by slot, and one past the last: where a node's numbers begin
  std::vector<int32_t> place;   // by number: its element of the packed s64 or f64 vector; -1: none
  std::vector<bool> real;       // by number: which of the two vectors
  uint32_t integers = 0, reals = 0;  // how many are added to each
};

// Of a program that runs on a mesh.
struct Sharded {
  const shard::Spelling& spelling;
  std::span<const shard::Ref> parameters;  // by buffer; null: replicated
  struct Output {
    bool open;  // wherever propagation puts it
    shard::Ref sharding;
  };
  std::vector<Output> outputs;
};

struct Options {
  Capabilities target;
  // By buffer parameter: the output that may take its memory; -1 or absent: none.
  std::span<const int> overwrites = {};
  const Inputs* inputs = nullptr;
  const Sharded* sharded = nullptr;
  // Of a program of replicas (ir::is_of_replicas), by buffer: what a replica has a part of.
  std::span<const shard::Ref> replicas = {};
};

// The graph says what each leaf becomes (ir/graph.h). `target` picks between forms of equal value
// that CPUs and accelerators run at different speed. Throws Error{kNotImplemented} for a node
// without a row.
Module lower(const ir::Graph& graph, std::string_view name, const Options& options = {});

}  // namespace tp::lower
