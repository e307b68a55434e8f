// PjrtClient's bytes: to and from devices, and programs to and from storage.
#include <algorithm>
#include <cstring>

#include "base/heap.h"
#include "base/text.h"
#include "client/ahead.h"
#include "client/pjrt_client.h"
#include "client/pjrt_types.h"
#include "client/sharded_data.h"
#include "probe/probe.h"

namespace tp::client {
namespace {

// Below this a copy costs less than the event and callback that aliasing needs.
constexpr int64_t kAliasFromBytes = 16384;
constexpr uintptr_t kAliasAlignment = 64;  // XLA copies silently what is aligned worse

alignas(64) constexpr unsigned char kNoBytes[64] = {};  // what an empty tensor points to

constexpr std::string_view kMagic = "torch_pjrt program 2\n";

// A line of the header; the text moves on behind it.
std::string_view take_line(std::string_view& text) {
  size_t end = text.find('\n');
  if (end == text.npos) fail(Code::kRuntime, "stored program: the header is cut off");
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

}  // namespace

DataPtr PjrtClient::transfer_to_device(const HostBuffer& from, int device) {
  static probe::Timer& timer = probe::timer("TransferToDevice");
  static probe::Counter& bytes = probe::counter("TransferToDeviceBytes");
  static probe::Counter& aliased = probe::counter("TransferToDeviceAliased");
  probe::Span span(timer);
  pjrt::HostBytes host{from.data, to_pjrt(from.type.dtype()), from.type.dims(), from.owner};
  int64_t size = from.type.bytes();
  if (size == 0) host.data = kNoBytes;
  bool aligned = reinterpret_cast<uintptr_t>(from.data) % kAliasAlignment == 0;
  // Unaligned bytes would be copied anyway: inside the call, so that their owner need not wait.
  if (size < kAliasFromBytes || !aligned) host.owner = nullptr;
  static probe::Timer& sizes = probe::accumulator("TransferToDevice");
  sizes.record(size);
  bytes.add(size);
  if (host.owner) aliased.add();
  static const auto uncounted = std::make_shared<Ledger>();
  return std::make_shared<PjrtData>(
      client_, client_->from_host(host, device_at(device)), from.type, device,
      from.counted ? ledgers_[static_cast<size_t>(device)] : uncounted);
}

void PjrtClient::transfer_from_device(const Data& data, void* to, std::shared_ptr<void> owner) {
  if (!data.parts().empty()) return gather_parts(*this, data, to);
  static probe::Timer& timer = probe::timer("TransferFromDevice");
  static probe::Counter& bytes = probe::counter("TransferFromDeviceBytes");
  probe::Span span(timer);
  const PjrtData& d = ours(data);
  auto size = static_cast<size_t>(d.type().bytes());
  static probe::Timer& sizes = probe::accumulator("TransferFromDevice");
  sizes.record(d.type().bytes());
  d.await();
  bytes.add(d.type().bytes());
  if (size == 0) return;
  if (!d.buffer().is_on_cpu()) {
    pjrt::Event copied = d.buffer().copy_to_host(to, size,
                                                 capabilities_.has(Fact::kHostLayouts)
                                                     ? pjrt::Buffer::Layout::kRowMajor
                                                     : pjrt::Buffer::Layout::kDevice);
    if (owner) copied.on_ready([owner](std::optional<pjrt::Failure>) {});
    copied.await();
    return;
  }
  // A plain copy is ten times faster than PJRT's for small values; the hold keeps another thread's
  // program from consuming the buffer meanwhile.
  auto hold = d.buffer().hold();
  std::memcpy(to, d.buffer().host_pointer(), size);
}

std::string PjrtClient::serialize(const Executable& program) {
  static probe::Timer& timer = probe::timer("Serialize");
  probe::Span span(timer);
  const PjrtExecutable& p = ours(program);
  return cat(kMagic, environment_.hex(), "\n", to_text(p.partitioning()), "\n",
             to_text(p.signature()), "\n", p.program().serialize());
}

ExecutablePtr PjrtClient::deserialize(std::string_view bytes, std::span<const ir::Type> outputs) {
  static probe::Timer& timer = probe::timer("Deserialize");
  CompileHeap heap;
  if (!bytes.starts_with(kMagic)) fail(Code::kRuntime, "stored program: not one of torch_pjrt's");
  probe::Span span(timer);
  bytes.remove_prefix(kMagic.size());
  // Plugins load programs of other builds and compute garbage with them: never try.
  if (take_line(bytes) != environment_.hex())
    fail(Code::kRuntime,
         "stored program: made in another environment (plugin, options or processor)");
  std::optional<Partitioning> partitioning = parse_partitioning(take_line(bytes));
  Signature signature = parse_signature(take_line(bytes));
  if (!std::equal(outputs.begin(), outputs.end(), signature.results.begin(),
                  signature.results.end()))
    fail(Code::kRuntime,
         cat("stored program: its results are not those asked for: ", to_text(signature)));
  return std::make_shared<PjrtExecutable>(client_, client_->deserialize(bytes),
                                          std::move(signature), std::move(partitioning));
}

ExecutablePtr PjrtClient::load_ahead(std::string_view module, std::string_view bytes) {
  static probe::Timer& timer = probe::timer("Deserialize");
  CompileHeap heap;
  probe::Span span(timer);
  return std::make_shared<PjrtExecutable>(client_, client_->deserialize(bytes),
                                          parse_signature(module));
}

ExecutablePtr load_ahead(ComputationClient& client, std::string_view module,
                         std::string_view bytes) {
  auto* pjrt = dynamic_cast<PjrtClient*>(&client);
  check(pjrt != nullptr, "programs made ahead of time are a plugin's");
  return pjrt->load_ahead(module, bytes);
}

}  // namespace tp::client
