// One node's statements: its row's lowering, or its regions' (control.h).
#pragma once
#include <span>
#include <vector>

#include "hlo/builder.h"
#include "ir/node.h"

namespace tp::lower {

// `numbers`: those of the node that are inputs of the program (ops::Lowering). `on_host`: may it be
// a call into this process (ops/host/choice.h)? Throws Error{kNotImplemented} for a node that
// nothing lowers.
void lower_node(hlo::Builder& b, const ir::Node& n, std::span<const hlo::V> in,
                std::span<const hlo::V> numbers, bool on_host, std::vector<hlo::V>& out);

}  // namespace tp::lower
