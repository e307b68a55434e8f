// Leaves as bytes, made on the host and handed to the device without a copy: fills (a tensor of one
// value), and the packed vectors of run-time numbers.
#pragma once
#include <unordered_map>
#include <vector>

#include "client/computation_client.h"
#include "exec/plan.h"
#include "ir/graph.h"

namespace tp::exec {

// `n` is a fill node. Values are cast as eager's `fill_` casts them. Any thread.
// `sharding`: null where it goes to its one device.
client::DataPtr upload_fill(client::ComputationClient& client, const ir::Node& n, int device,
                            const shard::Ref& sharding = nullptr);
// Fills that went up as buffers.
using Uploads = std::unordered_map<const ir::Node*, client::DataPtr>;
// The same once a node.
const client::DataPtr& upload_once(client::ComputationClient& client, const ir::Node& n, int device,
                                   Uploads& done, const shard::Ref& sharding = nullptr);
// By argument: buffers and the packed numbers.
size_t count_arguments(const Plan& plan);

// A program's run-time numbers: its packed s64 and f64 parameters.
struct Numbers64 {
  std::vector<int64_t> integers;
  std::vector<double> reals;
  // Puts a number leaf's value into its place (ir::LeafUse); whether that was another one.
  bool put(const ir::Scalar& s, ir::Feed feed, uint32_t index);
};
// The numbers of a plan's leaves, and those of its general program.
Numbers64 numbers_of(const Plan& plan);
// On `device`; or, where `mesh` has devices, on all of them.
client::DataPtr upload_numbers(client::ComputationClient& client, std::vector<int64_t> v,
                               int device, const std::vector<int>& mesh = {});
client::DataPtr upload_numbers(client::ComputationClient& client, std::vector<double> v, int device,
                               const std::vector<int>& mesh = {});

}  // namespace tp::exec
