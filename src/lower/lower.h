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

using Target = hlo::Builder::Target;

// The graph says what each leaf becomes (ir/graph.h). `target` picks between forms of equal value
// that CPUs and accelerators run at different speed. Throws Error{kNotImplemented} for a node
// without a row.
Module lower(const ir::Graph& graph, std::string_view name, Target target = Target::kCpu);

}  // namespace tp::lower
