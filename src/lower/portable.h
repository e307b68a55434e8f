// A graph as a program for others: its parameters in an order that is given, its numbers constants.
#pragma once
#include <span>
#include <string_view>

#include "lower/lower.h"

namespace tp::lower {

// Which dialects the text may use besides func.
enum class Dialects : unsigned char { kStableHlo, kStableHloAndChlo };

// `parameters` are leaves; the graph's buffers are among them, and it need not use them all. The
// caller holds the graph lock. Throws as lower() does.
Module lower_portable(const ir::Graph& graph, std::string_view name,
                      std::span<const ir::Node* const> parameters, Dialects dialects,
                      Capabilities target);

}  // namespace tp::lower
