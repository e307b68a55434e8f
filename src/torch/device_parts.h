// What a sync of several meshes computes: pending tensors by the program that they are part of.
// Any thread; without the GIL.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"

namespace tp::torch_room {

struct DeviceParts {
  std::vector<std::vector<uint64_t>> programs;  // ids of aliases, ascending
  // Of values that need buffers of several sets of devices. They are marked as raised: computed
  // (which fails) only when somebody reads them.
  std::optional<Error> impossible;
};
DeviceParts device_parts(int device);

}  // namespace tp::torch_room
