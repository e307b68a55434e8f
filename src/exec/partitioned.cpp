#include "exec/partitioned.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "client/sharded_data.h"

namespace tp::exec {

using client::DataPtr;

bool shares_parts(const client::Data& data) {
  return std::ranges::any_of(data.parts(), [](const DataPtr& p) { return p.use_count() > 1; });
}

DataPtr fit(client::ComputationClient& client, const Program& program, size_t slot,
            const DataPtr& argument) {
  const Placement& p = program.placement;
  shard::Ref wanted = slot < p.parameters.size() ? p.parameters[slot] : nullptr;
  if (const shard::Ref& has = argument->sharding()) {
    bool fits =
        wanted ? shard::same(*has, *wanted) : has->replicated() && has->devices == p.devices;
    if (fits) return argument;
    std::string_view whole = p.partitioned() ? "{replicated}" : "one device";
    fail(Code::kValue,
         cat("execute: argument ", slot, " ", argument->type().text(), " is sharded ", has->text,
             ", the program was compiled for ", wanted ? wanted->text : whole),
         cat("compile or capture again", p.partitioned() ? ", or mark_sharding it as before" : ""));
  }
  if (!p.partitioned()) return argument;
  if (wanted) return client::cut(client, argument, wanted);
  return client::spread(client, argument, shard::replicated_over(p.devices));
}

namespace {
// Result i as a whole: what the program gives, or, of replicas, what is made of their parts.
std::pair<ir::Type, shard::Ref> put_together(const Program& program, size_t i, ir::Type given) {
  if (!program.placement.replicas) return {given, program.executable->output_shardings()[i]};
  const shard::Ref& s = program.placement.outputs[i].sharding;
  if (!s) return {given, shard::replicated_over(program.placement.devices)};
  return {given.with(shard::whole_dims(*s, given.dims())), s};
}
}  // namespace

std::vector<DataPtr> run_partitioned(client::ComputationClient& client, const Program& program,
                                     std::span<const DataPtr> arguments,
                                     std::span<const uint8_t> donated, int device) {
  const std::vector<int>& devices = program.placement.devices;
  std::vector<std::vector<DataPtr>> lists(devices.size());
  for (size_t d = 0; d < devices.size(); ++d) {
    lists[d].reserve(arguments.size());
    for (const DataPtr& a : arguments) lists[d].push_back(a->parts()[d]);
  }
  auto results = client.execute_replicated(*program.executable, lists, devices, donated);
  auto types = program.executable->output_types();
  std::vector<DataPtr> out;
  for (size_t i = 0; i < types.size(); ++i) {
    std::vector<DataPtr> parts;
    for (auto& of_device : results) parts.push_back(std::move(of_device[i]));
    auto [type, sharding] = put_together(program, i, types[i]);
    out.push_back(
        std::make_shared<client::ShardedData>(type, device, std::move(sharding), std::move(parts)));
  }
  return out;
}

}  // namespace tp::exec
