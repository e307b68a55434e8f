#include "pjrt/device.h"

namespace tp::pjrt {

PJRT_DeviceDescription* Device::description() const {
  return call<&PJRT_Api::PJRT_Device_GetDescription>(api_, {.device = device_}).device_description;
}

int Device::id() const {
  return call<&PJRT_Api::PJRT_DeviceDescription_Id>(api_, {.device_description = description()}).id;
}

int Device::local_hardware_id() const {
  PJRT_Device_LocalHardwareId_Args args{};
  args.device = device_;
  if (try_call<&PJRT_Api::PJRT_Device_LocalHardwareId>(api_, args)) return -1;
  return args.local_hardware_id;
}

std::string Device::kind() const {
  auto r =
      call<&PJRT_Api::PJRT_DeviceDescription_Kind>(api_, {.device_description = description()});
  return std::string(r.device_kind, r.device_kind_size);
}

std::string Device::debug_string() const {
  auto r = call<&PJRT_Api::PJRT_DeviceDescription_DebugString>(
      api_, {.device_description = description()});
  return std::string(r.debug_string, r.debug_string_size);
}

std::optional<MemoryStats> Device::memory_stats() const {
  PJRT_Device_MemoryStats_Args args{};
  args.device = device_;
  if (auto failure = try_call<&PJRT_Api::PJRT_Device_MemoryStats>(api_, args)) {
    if (failure->code == PJRT_Error_Code_UNIMPLEMENTED) return std::nullopt;
    throw to_error("PJRT_Device_MemoryStats", *failure);
  }
  MemoryStats s{args.bytes_in_use, {}, {}};
  if (args.peak_bytes_in_use_is_set) s.peak_bytes = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) s.limit_bytes = args.bytes_limit;
  return s;
}

}  // namespace tp::pjrt
