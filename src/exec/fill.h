// Leaves as bytes, made on the host and handed to the device without a copy: fills (a tensor of one
// value), and the packed vectors of run-time numbers.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "client/computation_client.h"
#include "ir/graph.h"

namespace tp::exec {

// `n` is a fill node. Values are cast as eager's `fill_` casts them. Any thread.
client::DataPtr upload_fill(const ir::Node& n, int device);
// The same once a node.
using Uploads = std::unordered_map<const ir::Node*, client::DataPtr>;
const client::DataPtr& upload_once(const ir::Node& n, int device, Uploads& done);
// The fills among the roots, which are their own results. Before the launch: one that has taken its
// donors must not be followed by anything that can fail.
void upload_roots(std::span<const ir::Value> roots, int device, Uploads& done);

// A program's run-time numbers: its packed s64 and f64 parameters.
struct Numbers64 {
  std::vector<int64_t> integers;
  std::vector<double> reals;
  // Puts a number leaf's value into its place (ir::LeafUse); whether that was another one.
  bool put(const ir::Scalar& s, ir::Feed feed, uint32_t index);
};
client::DataPtr upload_numbers(std::vector<int64_t> v, int device);
client::DataPtr upload_numbers(std::vector<double> v, int device);

}  // namespace tp::exec
