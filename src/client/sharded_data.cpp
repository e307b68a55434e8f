#include "client/sharded_data.h"

#include <algorithm>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/text.h"
#include "probe/probe.h"
#include "shard/boxes.h"

namespace tp::client {
namespace {

class AllParts final : public Completion {
 public:
  explicit AllParts(std::span<const DataPtr> parts) {
    for (const DataPtr& p : parts) ends_.push_back(p->completion());
  }
  bool ready() const override {
    return std::ranges::all_of(ends_, [](const auto& e) { return e->ready(); });
  }
  void await() const override {
    for (const auto& e : ends_) e->await();
  }

 private:
  std::vector<std::shared_ptr<const Completion>> ends_;
};

// The bytes of data of one device, on the host.
HostBuffer on_host(ComputationClient& client, const DataPtr& data) {
  data->await();
  if (const void* p = data->host_pointer()) return {p, data->type(), nullptr};
  std::shared_ptr<void> bytes = host_memory(data->type().bytes());
  client.transfer_from_device(*data, bytes.get());
  return {bytes.get(), data->type(), bytes};
}

}  // namespace

ShardedData::ShardedData(ir::Type type, int device, shard::Ref sharding, std::vector<DataPtr> parts)
    : Data(type, device, std::move(sharding)), parts_(std::move(parts)) {
  check(parts_.size() == this->sharding()->devices.size(), "sharded data has one part a device");
}

bool ShardedData::ready() const {
  return std::ranges::all_of(parts_, [](const DataPtr& p) { return p->ready(); });
}
bool ShardedData::deleted() const {
  return std::ranges::any_of(parts_, [](const DataPtr& p) { return p->deleted(); });
}
void ShardedData::await() const {
  for (const DataPtr& p : parts_) p->await();
}
bool ShardedData::computed() const {
  return std::ranges::all_of(parts_, [](const DataPtr& p) { return p->computed(); });
}
const void* ShardedData::host_pointer() const {
  return sharding()->replicated() ? parts_[0]->host_pointer() : nullptr;
}
std::shared_ptr<const Completion> ShardedData::completion() const {
  return std::make_shared<AllParts>(parts_);
}

DataPtr upload_parts(ComputationClient& client, const HostBuffer& from, const shard::Ref& sharding,
                     int device) {
  static probe::Counter& uploads = probe::counter("ShardedUpload");
  uploads.add();
  auto dims = from.type.dims();
  int64_t element = ir::dtype_size(from.type.dtype());
  ir::Type part = from.type.with(shard::shard_dims(*sharding, dims));
  std::vector<DataPtr> parts;
  for (size_t p = 0; p < sharding->devices.size(); ++p) {
    shard::Box box = shard::box_of(*sharding, dims, p);
    int64_t offset = shard::run_offset(dims, box, element);
    HostBuffer bytes{static_cast<const char*>(from.data) + std::max<int64_t>(offset, 0), part,
                     from.owner};
    if (offset < 0) {
      bytes.owner = host_memory(part.bytes());
      shard::take_box(from.data, dims, box, element, bytes.owner.get());
      bytes.data = bytes.owner.get();
    }
    parts.push_back(client.transfer_to_device(bytes, sharding->devices[p]));
  }
  return std::make_shared<ShardedData>(from.type, device, sharding, std::move(parts));
}

DataPtr upload_alike(ComputationClient& client, const HostBuffer& part, const shard::Ref& sharding,
                     ir::Type whole, int device) {
  HostBuffer copied = part;
  copied.owner = nullptr;
  std::vector<DataPtr> parts;
  for (int d : sharding->devices) parts.push_back(client.transfer_to_device(copied, d));
  return std::make_shared<ShardedData>(whole, device, sharding, std::move(parts));
}

DataPtr spread(ComputationClient& client, const DataPtr& data, const shard::Ref& over) {
  static probe::Counter& spreads = probe::counter("SpreadBuffers");
  spreads.add();
  HostBuffer host = on_host(client, data);
  std::vector<DataPtr> parts;
  for (int d : over->devices)
    parts.push_back(d == data->device() ? data : client.transfer_to_device(host, d));
  return std::make_shared<ShardedData>(data->type(), data->device(), over, std::move(parts));
}

DataPtr cut(ComputationClient& client, const DataPtr& data, const shard::Ref& sharding) {
  // The parts are copies: the whole may be given away, and these with it.
  return upload_parts(client, on_host(client, data), sharding, data->device());
}

void gather_parts(ComputationClient& client, const Data& data, void* to) {
  const shard::Sharding& s = *data.sharding();
  auto parts = data.parts();
  if (s.replicated()) return client.transfer_from_device(*parts[0], to);
  auto dims = data.type().dims();
  int64_t element = ir::dtype_size(data.type().dtype());
  for (int p : shard::first_holders(s.tiles)) {
    auto at = static_cast<size_t>(p);
    shard::Box box = shard::box_of(s, dims, at);
    int64_t offset = shard::run_offset(dims, box, element);
    if (offset >= 0) {
      client.transfer_from_device(*parts[at], static_cast<char*>(to) + offset);
      continue;
    }
    std::shared_ptr<void> bytes = host_memory(parts[at]->type().bytes());
    client.transfer_from_device(*parts[at], bytes.get());
    shard::put_box(to, dims, box, element, bytes.get());
  }
}

}  // namespace tp::client
