// The module text of a plan. Under graph_lock(), the plan's slots in place.
#pragma once
#include <string>

#include "client/computation_client.h"
#include "exec/plan.h"

namespace tp::exec {

std::string module_text(const Plan& plan, const client::ComputationClient& client);

}  // namespace tp::exec
