// The seam: everything that leaves for a device crosses this class. Collectives are instructions
// inside programs, never calls. Every crossing stamps a timer in the implementation (probe/) and
// never holds the GIL (callers in src/torch release it). All methods may be called from any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/capabilities.h"
#include "base/hash.h"
#include "ir/node.h"
#include "ir/type.h"
#include "shard/sharding.h"

namespace tp::client {

// The end of the program or copy that makes a buffer; outlives the buffer.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual bool ready() const = 0;  // over, or failed: never blocks
  virtual void await() const = 0;  // throws Error where it failed
};

class Data;
using DataPtr = std::shared_ptr<Data>;

// A device buffer, perhaps of a program that still runs; or one a device of a mesh, seen as one
// (client/sharded_data.h). Immutable but for donation.
class Data : public ir::Leaf {
 public:
  Data(ir::Type type, int device, shard::Ref sharding = nullptr)
      : type_(type), device_(device), sharding_(std::move(sharding)) {}
  ir::Type type() const { return type_; }  // of the whole, where it is sharded
  int device() const { return device_; }   // the one that its tensors are of
  // Over which devices, and how; null: on its one device.
  const shard::Ref& sharding() const { return sharding_; }
  virtual bool ready() const = 0;    // computed (or failed) already: never blocks
  virtual bool deleted() const = 0;  // donated or freed on the device
  // Blocks until the bytes are there; throws Error with the plugin's words where the producing
  // program failed.
  virtual void await() const = 0;
  // Computed, and without a failure: never blocks.
  virtual bool computed() const = 0;
  // The bytes, where the host can read them in place (CPU plugins), else null. Only after await().
  virtual const void* host_pointer() const = 0;
  // Calls `done` once, when ready (or failed): at once, or in a thread of the plugin. For
  // timelines; a client that cannot tell calls it at once.
  virtual void on_ready(std::function<void()> done) const { done(); }
  virtual std::shared_ptr<const Completion> completion() const = 0;
  // By partition, where it is sharded.
  virtual std::span<const DataPtr> parts() const { return {}; }

 private:
  ir::Type type_;
  int device_;
  shard::Ref sharding_;
};

// A compiled program, loaded and ready to run.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual std::span<const ir::Type> output_types() const = 0;  // of the whole
  // Of a partitioned program: where each output really is. Empty of others.
  virtual std::span<const shard::Ref> output_shardings() const { return {}; }
};
using ExecutablePtr = std::shared_ptr<Executable>;

// What the plugin tells about a program; empty parts are what it does not.
struct ProgramInfo {
  struct Memory {
    bool known = false;
    int64_t arguments = 0, outputs = 0, temporaries = 0, donated = 0, code = 0, peak = 0;
  } memory;
  std::vector<std::pair<std::string, double>> costs;  // "flops", "bytes accessed", ...
  std::string optimized, optimized_format;            // "hlo_with_config": a protobuf
};

struct DeviceInfo {
  int id = 0;  // PJRT's global id
  int local_hardware_id = 0;
  std::string kind;  // "cpu"
  std::string text;  // the plugin's debug string
};

struct CompileRequest {
  std::string_view module;  // StableHLO text
  std::span<const ir::Type> outputs;
  int device = 0;  // index into devices()
  int num_replicas = 1, num_partitions = 1;
  bool spmd = false;
  // Of a partitioned program. Indices into devices(), by partition; empty: from `device` on.
  std::vector<int> devices = {};
  bool shardy = false;                               // the form of the module's shardings
  std::vector<bool> open_outputs = {};               // may the plugin choose how they are cut?
  std::vector<shard::Ref> parameter_shardings = {};  // null: replicated
  std::vector<shard::Ref> output_shardings = {};     // of those that are not open; likewise
};

struct MemoryInfo {
  // Counted by us: bytes of the buffers that live, the most that lived at once, and what programs
  // were given to overwrite since the start.
  int64_t live_bytes = 0, peak_live_bytes = 0, donated_bytes = 0;
  bool known = false;  // what follows, the plugin's own numbers
  int64_t bytes_in_use = 0, peak_bytes = 0, limit_bytes = 0;
};

// Bytes on the host. `owner` keeps them alive and unchanged for as long as the device may read
// them, so an implementation may alias them instead of copying.
struct HostBuffer {
  const void* data;
  ir::Type type;  // dense, row-major
  std::shared_ptr<void> owner;
  bool counted = true;  // among the live bytes of memory_info; no tensor holds a program's numbers
};

class ComputationClient {
 public:
  virtual ~ComputationClient() = default;
  virtual std::string platform() const = 0;  // "cpu"
  virtual std::string platform_version() const = 0;
  virtual std::span<const DeviceInfo> devices() const = 0;
  virtual Capabilities capabilities() const = 0;  // what to lower for
  // What users can do to have that many devices; empty: nothing is known.
  virtual std::string how_to_have(int /*devices*/) const { return {}; }
  // Folds platform, plugin file and version, compile options, XLA flags: the key's "environment".
  virtual Hash128 environment_hash() const = 0;
  // The environment variables that the plugin found when it was loaded (PluginSpec::variables):
  // "XLA_FLAGS=--x" and others, joined by spaces.
  virtual std::string variables_text() const { return {}; }
  // Names of those that have another value by now. Plugins read them once, so that this has no
  // effect; should one look again, its programs are not those that environment_hash() stands for.
  virtual std::vector<std::string> changed_variables() const { return {}; }

  virtual ExecutablePtr compile(const CompileRequest& request) = 0;
  // Starts the program and gives its outputs at once. Shapes are checked strictly: count and types
  // of arguments must be the program's. donated[i]: argument i may be consumed (then it is
  // deleted()).
  virtual std::vector<DataPtr> execute(const Executable& program,
                                       std::span<const DataPtr> arguments,
                                       std::span<const uint8_t> donated, int device) = 0;
  // One execution on several devices: arguments[d][i]. One device lock for all. `donated` is as in
  // execute(), for all devices.
  virtual std::vector<std::vector<DataPtr>> execute_replicated(
      const Executable& program, std::span<const std::vector<DataPtr>> arguments,
      std::span<const int> devices, std::span<const uint8_t> donated) = 0;

  virtual DataPtr transfer_to_device(const HostBuffer& from, int device) = 0;
  // Blocks; `to` has room for data.type().bytes(), row-major. `owner` keeps `to` alive where Ctrl-C
  // ends the wait before the copy has ended.
  virtual void transfer_from_device(const Data& data, void* to,
                                    std::shared_ptr<void> owner = nullptr) = 0;

  virtual std::string serialize(const Executable& program) = 0;
  virtual ExecutablePtr deserialize(std::string_view bytes, std::span<const ir::Type> outputs) = 0;

  virtual MemoryInfo memory_info(int device) const = 0;
  // Blocks; slow for `optimized`.
  virtual ProgramInfo inspect(const Executable&, bool /*optimized*/) { return {}; }
  virtual void reset_peak_memory(int device) = 0;
};

}  // namespace tp::client
