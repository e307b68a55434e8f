// The fake plugin's objects behind PJRT's opaque pointers. Memory is the host's; every output is
// zeros.
#pragma once
#include <pjrt_c_api.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "program.h"
#include "script.h"

struct PJRT_Error {
  PJRT_Error_Code code;
  std::string words;
};

namespace fake {

// Something that finishes once, well or with a fault; events watch it.
class Work {
 public:
  void finish(std::optional<Fault> fault);
  bool done() const;
  std::optional<Fault> wait();
  void on_done(std::function<void(std::optional<Fault>)> f);

 private:
  mutable std::mutex mu_;
  std::condition_variable changed_;
  bool done_ = false;
  std::optional<Fault> fault_;
  std::vector<std::function<void(std::optional<Fault>)>> waiting_;
};
std::shared_ptr<Work> finished(std::optional<Fault> fault = std::nullopt);

inline PJRT_Error* error(PJRT_Error_Code code, std::string words) {
  return new PJRT_Error{code, std::move(words)};
}
inline PJRT_Error* error(const std::optional<Fault>& f) {
  return f ? error(f->code, f->words) : nullptr;
}

inline constexpr const char* kGone = "Buffer has been deleted or donated.";

}  // namespace fake

struct PJRT_Event {
  std::shared_ptr<fake::Work> work;
};

struct PJRT_DeviceDescription {
  int id;
  std::string kind, text;
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
};

struct PJRT_Client {
  std::vector<std::unique_ptr<PJRT_Device>> devices;
  std::vector<PJRT_Device*> device_list;
};

struct PJRT_Buffer {
  PJRT_Device* device;
  fake::TensorType type;
  std::shared_ptr<void> bytes;  // 64-byte aligned, or the caller's
  std::shared_ptr<fake::Work> work;
  std::atomic<bool> deleted{false};
  std::atomic<int> holds{0};
  static std::atomic<long> alive;
  PJRT_Buffer() { ++alive; }
  ~PJRT_Buffer() { --alive; }
};

struct PJRT_TopologyDescription {
  std::vector<std::unique_ptr<PJRT_DeviceDescription>> devices;
  std::vector<PJRT_DeviceDescription*> device_list;
};

struct PJRT_Executable {
  std::shared_ptr<const fake::Program> program;
  std::vector<PJRT_Buffer_Type> types;
  std::vector<int64_t> dims;
  std::vector<size_t> ranks;
  bool ahead = false;  // compiled for a topology
};

struct PJRT_LoadedExecutable {
  std::shared_ptr<const fake::Program> program;
  std::vector<PJRT_Device*> devices;
};

struct PJRT_SerializedExecutable {
  std::string bytes;
};

namespace fake {

// Finishes `work` when the script says: now, or `slow` later from a thread of its own (at once
// where another script is set).
void finish_later(std::shared_ptr<Work> work, std::optional<Fault> fault,
                  std::optional<Fault> slow);
std::shared_ptr<void> zeros(size_t bytes);
// Fills the part of the API table that concerns programs (programs.cpp); fakeplugin.cpp fills the
// rest.
void fill_programs(PJRT_Api& api);
// Topologies "fake:N", N devices of kind "fake", and programs compiled for them (topology.cpp).
void fill_topologies(PJRT_Api& api);
// A program that is on no device yet.
PJRT_Executable* make_executable(std::shared_ptr<const Program> program);

}  // namespace fake
