// The module text of a plan; `on_host`: lower::Options. Under graph_lock(), the plan's slots in
// place.
#pragma once
#include <string>

#include "client/computation_client.h"
#include "exec/plan.h"

namespace tp::exec {

std::string module_text(const Plan& plan, const client::ComputationClient& client, bool on_host);

// Of a graph of leaves alone. Under graph_lock().
std::string identity_text(const ir::Graph& leaves, const client::ComputationClient& client);

}  // namespace tp::exec
