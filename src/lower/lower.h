// Graph -> StableHLO module text. Walks the graph in order and asks each node's row; nothing
// op-specific.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "hlo/builder.h"
#include "ir/graph.h"

namespace tp::lower {

struct Module {
  std::string text;
  int statements = 0;
};

// `plan` says what each leaf becomes (ir/graph.h). Throws Error{kNotImplemented} for a node without
// a row.
Module lower(const ir::Graph& graph, std::string_view name);

}  // namespace tp::lower
