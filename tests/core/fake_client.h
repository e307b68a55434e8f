// FakeClient: a ComputationClient that records what it is asked for and computes nothing: outputs
// are zeros of the right types, ready at once. For tests of exec/ that need no plugin. Not
// thread-safe, but for the counters.
#pragma once
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "client/computation_client.h"
#include "client/platforms.h"

namespace tp::test {

// The end of programs, for a test to decide.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<int> waiting{0};  // so many have come to wait
};

class FakeData final : public client::Data {
 public:
  FakeData(ir::Type type, int device, std::shared_ptr<std::vector<char>> bytes)
      : Data(type, device), bytes_(std::move(bytes)) {}
  bool ready() const override { return true; }
  bool deleted() const override {
    if (mute) fail(Code::kInternal, "PJRT_Buffer_IsDeleted failed");
    return deleted_;
  }
  void await() const override {
    if (failure) throw *failure;
    if (deleted_) fail(Code::kRuntime, "Buffer has been deleted or donated.");
  }
  bool computed() const override { return !failure && !deleted_; }
  const void* host_pointer() const override { return bytes_->data(); }
  std::shared_ptr<const client::Completion> completion() const override {
    struct End final : client::Completion {
      std::optional<Error> failure;
      std::shared_ptr<Gate> gate;
      bool ready() const override { return !gate || gate->open; }
      void await() const override {
        if (gate) ++gate->waiting;
        while (!ready()) std::this_thread::yield();
        if (failure) throw *failure;
      }
    };
    auto end = std::make_shared<End>();
    end->failure = failure;
    end->gate = gate;
    return end;
  }
  void consume() const { deleted_ = true; }
  std::optional<Error> failure;  // what await() throws
  std::shared_ptr<Gate> gate;    // the producing program is over once it opens; null: at once
  bool mute = false;             // deleted() throws

 private:
  std::shared_ptr<std::vector<char>> bytes_;
  mutable bool deleted_ = false;
};

class FakeExecutable final : public client::Executable {
 public:
  FakeExecutable(std::string module, std::vector<ir::Type> outputs)
      : module(std::move(module)), outputs(std::move(outputs)) {}
  std::span<const ir::Type> output_types() const override { return outputs; }
  const std::string module;
  const std::vector<ir::Type> outputs;
};

class FakeClient final : public client::ComputationClient {
 public:
  struct Call {
    std::string
        what;  // "compile", "execute", "to_device", "from_device", "serialize", "deserialize"
    std::string module;
    std::vector<const client::Data*> arguments;  // identities only: they may be gone by now
    std::vector<uint8_t> donated;
    std::vector<ir::Type> argument_types;
  };
  std::vector<Call> calls;
  // Thrown by the next call of that kind, once.
  std::shared_ptr<Gate> gate;  // of all programs started from now on
  std::optional<Error> fail_compile, fail_execute, fail_outputs, fail_serialize, fail_deserialize;

  explicit FakeClient(int num_devices = 1) {
    for (int i = 0; i < num_devices; ++i) devices_.push_back({i, i, "double", "FakeClient device"});
  }
  size_t count(std::string_view what) const {
    std::lock_guard lock(mu_);
    size_t n = 0;
    for (const Call& c : calls) n += c.what == what;
    return n;
  }

  std::string platform() const override { return "double"; }
  std::string platform_version() const override { return "1"; }
  Capabilities capabilities() const override { return client::of_platform("cpu"); }
  std::span<const client::DeviceInfo> devices() const override { return devices_; }
  Hash128 environment_hash() const override { return hash_text("FakeClient"); }

  client::ExecutablePtr compile(const client::CompileRequest& r) override {
    record({"compile", std::string(r.module), {}, {}});
    throw_once(fail_compile);
    return std::make_shared<FakeExecutable>(std::string(r.module), to_vector(r.outputs));
  }
  std::vector<client::DataPtr> execute(const client::Executable& program,
                                       std::span<const client::DataPtr> arguments,
                                       std::span<const uint8_t> donated, int device) override {
    auto& p = static_cast<const FakeExecutable&>(program);
    Call call{"execute", p.module, {}, {donated.begin(), donated.end()}};
    for (const auto& a : arguments) {
      call.arguments.push_back(a.get());
      call.argument_types.push_back(a->type());
    }
    record(std::move(call));
    throw_once(fail_execute);
    for (size_t i = 0; i < donated.size(); ++i)
      if (donated[i]) static_cast<const FakeData&>(*arguments[i]).consume();
    std::vector<client::DataPtr> out;
    for (ir::Type t : p.outputs) {
      auto d = std::make_shared<FakeData>(t, device, zeros(t));
      d->failure = fail_outputs;
      d->gate = gate;
      out.push_back(std::move(d));
    }
    fail_outputs.reset();
    return out;
  }
  std::vector<std::vector<client::DataPtr>> execute_replicated(
      const client::Executable& program, std::span<const std::vector<client::DataPtr>> arguments,
      std::span<const int> devices, std::span<const uint8_t> donated) override {
    std::vector<std::vector<client::DataPtr>> out;
    for (size_t i = 0; i < devices.size(); ++i)
      out.push_back(execute(program, arguments[i], donated, devices[i]));
    return out;
  }
  client::DataPtr transfer_to_device(const client::HostBuffer& from, int device) override {
    record({"to_device", {}, {}, {}});
    auto bytes = zeros(from.type);
    if (from.type.bytes())
      std::memcpy(bytes->data(), from.data, static_cast<size_t>(from.type.bytes()));
    return std::make_shared<FakeData>(from.type, device, std::move(bytes));
  }
  void transfer_from_device(const client::Data& data, void* to,
                            std::shared_ptr<void> = nullptr) override {
    record({"from_device", {}, {&data}, {}});
    data.await();
    if (data.type().bytes())
      std::memcpy(to, data.host_pointer(), static_cast<size_t>(data.type().bytes()));
  }
  std::string serialize(const client::Executable& program) override {
    record({"serialize", {}, {}, {}});
    throw_once(fail_serialize);
    return static_cast<const FakeExecutable&>(program).module;
  }
  client::ExecutablePtr deserialize(std::string_view bytes,
                                    std::span<const ir::Type> outputs) override {
    record({"deserialize", std::string(bytes), {}, {}});
    throw_once(fail_deserialize);
    return std::make_shared<FakeExecutable>(std::string(bytes), to_vector(outputs));
  }
  client::MemoryInfo memory_info(int) const override { return {}; }
  void reset_peak_memory(int) override {}

 private:
  static std::vector<ir::Type> to_vector(std::span<const ir::Type> s) {
    return {s.begin(), s.end()};
  }
  static std::shared_ptr<std::vector<char>> zeros(ir::Type t) {
    return std::make_shared<std::vector<char>>(static_cast<size_t>(t.bytes()));
  }
  void record(Call call) {
    std::lock_guard lock(mu_);
    calls.push_back(std::move(call));
  }
  static void throw_once(std::optional<Error>& e) {
    if (!e) return;
    Error copy = *e;
    e.reset();
    throw copy;
  }
  std::vector<client::DeviceInfo> devices_;
  mutable std::mutex mu_;  // guards calls while threads run
};

}  // namespace tp::test
