// PjrtClient: the seam over a PJRT plugin. Private to client/ and its tests; others use the
// interface and client/host_call.h. Any thread; PJRT itself is thread-safe, the one lock is for
// replicated launches.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/lock_order.h"
#include "base/small_vector.h"
#include "client/environment.h"
#include "client/ledger.h"
#include "client/pjrt_objects.h"
#include "client/registry.h"

namespace tp::client {

class PjrtClient final : public ComputationClient {
 public:
  explicit PjrtClient(const PluginSpec& spec, const Processes& processes = {});

  std::string platform() const override { return client_->platform_name(); }
  std::string platform_version() const override { return client_->platform_version(); }
  std::span<const DeviceInfo> devices() const override { return devices_; }
  Capabilities capabilities() const override { return capabilities_; }
  std::string how_to_have(int devices) const override;
  Hash128 environment_hash() const override { return environment_; }

  ExecutablePtr compile(const CompileRequest& request) override;
  std::vector<DataPtr> execute(const Executable& program, std::span<const DataPtr> arguments,
                               std::span<const uint8_t> donated, int device) override;
  std::vector<std::vector<DataPtr>> execute_replicated(
      const Executable& program, std::span<const std::vector<DataPtr>> arguments,
      std::span<const int> devices, std::span<const uint8_t> donated) override;

  DataPtr transfer_to_device(const HostBuffer& from, int device) override;
  void transfer_from_device(const Data& data, void* to, std::shared_ptr<void> owner) override;

  // Our own header (environment, signature) before the plugin's bytes, so that a loaded program is
  // checked as strictly as a compiled one and a foreign one is refused.
  std::string serialize(const Executable& program) override;
  ExecutablePtr deserialize(std::string_view bytes, std::span<const ir::Type> outputs) override;

  ExecutablePtr load_ahead(std::string_view module, std::string_view bytes);  // client/ahead.h

  MemoryInfo memory_info(int device) const override;
  ProgramInfo inspect(const Executable& program, bool optimized) override;
  void reset_peak_memory(int device) override;

  const pjrt::Plugin& plugin() const { return client_->plugin(); }
  std::string variables_text() const override;
  std::vector<std::string> changed_variables() const override;

 private:
  void tell_changed_variables();
  int level() const;  // of each compile: TORCH_PJRT_OPTIMIZATION_LEVEL, where the plugin has levels
  const pjrt::Device& device_at(int device) const;
  const PjrtExecutable& ours(const Executable& program) const;
  const PjrtData& ours(const Data& data) const;
  pjrt::CompileOptions options_for(const CompileRequest& request, size_t num_parameters) const;
  using Buffers = SmallVec<PJRT_Buffer*, 16>;
  // Checks the arguments of one device and appends their buffers to `to`.
  void gather(const PjrtExecutable& program, std::span<const DataPtr> arguments, int device,
              Buffers& to) const;
  std::vector<DataPtr> wrap(const PjrtExecutable& program, std::span<PJRT_Buffer* const> outputs,
                            int device) const;

  const PluginSpec spec_;
  const std::shared_ptr<pjrt::KeyValueStore> store_;  // outlives client_, whose plugin calls it
  const Variables variables_;  // read before the plugin is loaded, and can read them
  std::shared_ptr<const pjrt::Client> client_;
  std::vector<std::pair<std::string, OptionValue>> compile_options_;
  Capabilities capabilities_;
  std::vector<DeviceInfo> devices_;
  std::vector<std::shared_ptr<Ledger>> ledgers_;  // by device; shared with the data
  Hash128 environment_;
  std::atomic<bool> reported_change_{false};
  // All devices must see replicated launches in one order, or their collectives wait for each other
  // forever.
  RankedMutex<LockRank::kDevices> device_lock_;
};

}  // namespace tp::client
