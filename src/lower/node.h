// One node's statements: its row's lowering, or its regions' (control.h).
#pragma once
#include <span>
#include <vector>

#include "hlo/builder.h"
#include "ir/node.h"

namespace tp::lower {

// `numbers`: those of the node that are inputs of the program (ops::Lowering). Throws
// Error{kNotImplemented} for a node that nothing lowers.
void lower_node(hlo::Builder& b, const ir::Node& n, std::span<const hlo::V> in,
                std::span<const hlo::V> numbers, std::vector<hlo::V>& out);

}  // namespace tp::lower
