#include "exec/module.h"

#include "base/text.h"
#include "lower/lower.h"

namespace tp::exec {

std::string module_text(const Plan& plan, const client::ComputationClient& client) {
  std::vector<int> overwrites(plan.donors.empty() ? 0 : plan.graph.num_buffers, -1);
  for (const Donor& d : plan.donors) overwrites[d.parameter] = static_cast<int>(d.output);
  return lower::lower(plan.graph, "g" + plan.key.total.hex().substr(0, 12),
                      {.target = client.capabilities(),
                       .overwrites = overwrites,
                       .inputs = plan.general ? &plan.general->inputs : nullptr})
      .text;
}

}  // namespace tp::exec
