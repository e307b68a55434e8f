// ShardedData: one buffer a device of a mesh, seen as one: tensors, donation, launches in flight
// and recovery hold one handle. And the ways bytes get in and out of it: parts are cut on the host,
// so that no device ever has more than its own, and put together there when they are read.
//
// Immutable; any thread.
#pragma once
#include <vector>

#include "client/computation_client.h"

namespace tp::client {

class ShardedData final : public Data {
 public:
  // `parts` by partition of `sharding`.
  ShardedData(ir::Type type, int device, shard::Ref sharding, std::vector<DataPtr> parts);
  std::span<const DataPtr> parts() const override { return parts_; }
  bool ready() const override;
  bool deleted() const override;
  void await() const override;
  bool computed() const override;
  const void* host_pointer() const override;
  void on_ready(std::function<void()> done) const override { parts_.back()->on_ready(done); }
  std::shared_ptr<const Completion> completion() const override;

 private:
  std::vector<DataPtr> parts_;
};

// Cuts host bytes and uploads each device's part. `device`: the one that the tensor is of.
DataPtr upload_parts(ComputationClient& client, const HostBuffer& from, const shard::Ref& sharding,
                     int device);
// The same bytes as each device's part of data of type `whole`: copies, any of which may be given
// away.
DataPtr upload_alike(ComputationClient& client, const HostBuffer& part, const shard::Ref& sharding,
                     ir::Type whole, int device);
// Data of one device on all of `over`, itself among the parts where its device is one of them.
DataPtr spread(ComputationClient& client, const DataPtr& data, const shard::Ref& over);
// Data of one device cut into parts: by the host. Blocks.
DataPtr cut(ComputationClient& client, const DataPtr& data, const shard::Ref& sharding);
// Reads sharded data into `to`, row-major. Blocks.
void gather_parts(ComputationClient& client, const Data& data, void* to);

}  // namespace tp::client
