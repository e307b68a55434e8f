// Device: one device of a client; a plain handle that lives as long as its client. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "pjrt/api.h"

namespace tp::pjrt {

struct MemoryStats {
  int64_t bytes_in_use = 0;
  std::optional<int64_t> peak_bytes, limit_bytes;
};

class Device {
 public:
  Device() = default;
  Device(const PJRT_Api* api, PJRT_Device* device) : api_(api), device_(device) {}
  PJRT_Device* raw() const { return device_; }

  int id() const;                 // unique among all processes' devices
  int local_hardware_id() const;  // -1 where the plugin has none
  std::string kind() const;
  std::string debug_string() const;
  // Nothing where the plugin keeps no statistics (CPU plugins).
  std::optional<MemoryStats> memory_stats() const;

 private:
  PJRT_DeviceDescription* description() const;
  const PJRT_Api* api_ = nullptr;
  PJRT_Device* device_ = nullptr;
};

}  // namespace tp::pjrt
