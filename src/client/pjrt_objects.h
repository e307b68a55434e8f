// What PjrtClient hands out: data handles and programs over PJRT objects. Private to client/. Each
// keeps its PJRT client alive. Any thread; no call needs the GIL.
#pragma once
#include <atomic>
#include <memory>
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

class PjrtExecutable final : public Executable {
 public:
  // Checks what the plugin says about the program against `signature` and throws kInternal where
  // they differ.
  PjrtExecutable(std::shared_ptr<const pjrt::Client> client, pjrt::Executable program,
                 Signature signature, bool partitioned);
  std::span<const ir::Type> output_types() const override { return signature_.results; }
  const pjrt::Executable& program() const { return program_; }
  const pjrt::Client* client() const { return client_.get(); }
  const Signature& signature() const { return signature_; }
  // Results as each device has them: shards where the program is partitioned.
  std::span<const ir::Type> device_outputs() const { return device_outputs_; }
  // Indices into the client's devices, in launch order.
  std::span<const int> devices() const { return devices_; }
  // Arguments are shards: their dims are not those of the module's text.
  bool partitioned() const { return partitioned_; }

 private:
  void read_outputs();
  std::shared_ptr<const pjrt::Client> client_;
  pjrt::Executable program_;
  Signature signature_;
  std::vector<ir::Type> device_outputs_;
  std::vector<int> devices_;
  bool partitioned_;
};

}  // namespace tp::client
