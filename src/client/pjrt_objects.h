// What PjrtClient hands out: data handles and programs over PJRT objects. Private to client/. Each
// keeps its PJRT client alive. Any thread; no call needs the GIL.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/computation_client.h"
#include "client/ledger.h"
#include "client/signature.h"
#include "pjrt/client.h"

namespace tp::client {

class PjrtData final : public Data {
 public:
  PjrtData(std::shared_ptr<const pjrt::Client> client, pjrt::Buffer buffer, ir::Type type,
           int device, std::shared_ptr<Ledger> ledger);
  ~PjrtData() override;
  bool ready() const override;
  bool deleted() const override { return buffer_.is_deleted(); }
  // Called once a program that was given the buffer has been started: books it as donated where the
  // program took it. The program runs by then, so nothing here may fail.
  void given_away() const noexcept;
  void await() const override;
  bool computed() const override;
  const void* host_pointer() const override;
  void on_ready(std::function<void()> done) const override;
  std::shared_ptr<const Completion> completion() const override;
  const pjrt::Buffer& buffer() const { return buffer_; }
  const pjrt::Client* client() const { return client_.get(); }

 private:
  std::shared_ptr<const pjrt::Client> client_;  // first: goes last
  pjrt::Buffer buffer_;
  std::shared_ptr<Ledger> ledger_;
  mutable std::atomic<bool> settled_{false};  // awaited once without a failure
  mutable std::atomic<bool> donated_{false};
};

// How a partitioned program cuts its arguments (null: not at all) and results. Empty lists: as the
// module's text says, which is not known in detail.
struct Partitioning {
  std::vector<shard::Ref> parameters, outputs;
};
// As a line of a stored program's header, and back.
std::string to_text(const std::optional<Partitioning>& p);
std::optional<Partitioning> parse_partitioning(std::string_view text);

class PjrtExecutable final : public Executable {
 public:
  // Checks what the plugin says about the program against `signature` and throws kInternal where
  // they differ.
  PjrtExecutable(std::shared_ptr<const pjrt::Client> client, pjrt::Executable program,
                 Signature signature, std::optional<Partitioning> partitioning = std::nullopt);
  std::span<const ir::Type> output_types() const override { return signature_.results; }
  std::span<const shard::Ref> output_shardings() const override {
    return partitioning_ ? std::span<const shard::Ref>(partitioning_->outputs)
                         : std::span<const shard::Ref>();
  }
  const pjrt::Executable& program() const { return program_; }
  const pjrt::Client* client() const { return client_.get(); }
  const Signature& signature() const { return signature_; }
  // Arguments and results as each device has them: shards where the program is partitioned.
  std::span<const ir::Type> device_parameters() const { return device_parameters_; }
  std::span<const ir::Type> device_outputs() const { return device_outputs_; }
  // Indices into the client's devices, in launch order.
  std::span<const int> devices() const { return devices_; }
  const std::optional<Partitioning>& partitioning() const { return partitioning_; }

 private:
  void read_outputs();
  std::shared_ptr<const pjrt::Client> client_;
  pjrt::Executable program_;
  Signature signature_;
  std::vector<ir::Type> device_parameters_, device_outputs_;
  std::vector<int> devices_;
  std::optional<Partitioning> partitioning_;
};

}  // namespace tp::client
