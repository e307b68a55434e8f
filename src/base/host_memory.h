// Memory of the host for bytes on their way to or from a device.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace tp {

// Aligned as CPU plugins want it for zero copy. Error (kOutOfMemory) where the system gives none.
inline std::shared_ptr<void> host_memory(int64_t bytes) {
  constexpr size_t kAlign = 64;
  size_t room = (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + kAlign - 1) / kAlign * kAlign;
  void* p = std::aligned_alloc(kAlign, room);
  if (!p) {
    fail(Code::kOutOfMemory, cat("out of memory on the host: cannot allocate ", bytes, " bytes"),
         "a smaller tensor, or one that is cut over devices or steps");
  }
  return {p, std::free};
}

}  // namespace tp
