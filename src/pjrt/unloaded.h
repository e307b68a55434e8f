// Unloaded: a compiled program that is on no device: what a loaded one was made of, or what was
// compiled for hardware that need not be there. Owns the PJRT_Executable; move-only. Any thread.
#pragma once
#include <string>
#include <utility>

#include "pjrt/api.h"
#include "pjrt/inspect.h"

namespace tp::pjrt {

class Unloaded {
 public:
  Unloaded(const PJRT_Api* api, PJRT_Executable* executable) : api_(api), executable_(executable) {}
  Unloaded(Unloaded&& o) noexcept
      : api_(o.api_), executable_(std::exchange(o.executable_, nullptr)) {}
  ~Unloaded() {
    if (executable_) destroy<&PJRT_Api::PJRT_Executable_Destroy>(api_, {.executable = executable_});
  }

  PJRT_Executable* raw() const { return executable_; }
  Inspection inspect(bool optimized) const { return pjrt::inspect(api_, executable_, optimized); }
  std::string serialize() const {
    auto r = call<&PJRT_Api::PJRT_Executable_Serialize>(api_, {.executable = executable_});
    std::string bytes(r.serialized_bytes, r.serialized_bytes_size);
    r.serialized_executable_deleter(r.serialized_executable);
    return bytes;
  }

 private:
  const PJRT_Api* api_;
  PJRT_Executable* executable_;
};

}  // namespace tp::pjrt
