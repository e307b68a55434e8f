#include "exec/module.h"

#include "base/text.h"
#include "lower/lower.h"

namespace tp::exec {

std::string module_text(const Plan& plan, const client::ComputationClient& client, bool on_host) {
  std::vector<int> overwrites(plan.donors.empty() ? 0 : plan.graph.num_buffers, -1);
  for (const Donor& d : plan.donors) overwrites[d.parameter] = static_cast<int>(d.output);
  lower::Options options{.target = client.capabilities(),
                         .overwrites = overwrites,
                         .inputs = plan.general ? &plan.general->inputs : nullptr};
  std::string name = "g" + plan.key.total.hex().substr(0, 12);
  const Placement& p = plan.placement;
  if (p.replicas) options.replicas = p.parameters;
  if (!p.partitioned() || p.replicas) {
    options.on_host = on_host && !p.replicas;
    return lower::lower(plan.graph, name, options).text;
  }
  std::vector<shard::Ref> all = p.constraints;
  for (const shard::Ref& s : p.parameters)
    if (s) all.push_back(s);
  std::vector<lower::Sharded::Output> outputs;
  for (const Pin& o : p.outputs) {
    outputs.push_back({!o.pinned, o.sharding});
    if (o.sharding) all.push_back(o.sharding);
  }
  shard::Spelling spelling(p.form(), p.devices, all);
  lower::Sharded sharded{spelling, p.parameters, std::move(outputs)};
  options.sharded = &sharded;
  return lower::lower(plan.graph, name, options).text;
}

std::string identity_text(const ir::Graph& leaves, const client::ComputationClient& client) {
  return lower::lower(leaves, "leaves", {.target = client.capabilities()}).text;
}

}  // namespace tp::exec
