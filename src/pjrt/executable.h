// Executable: a compiled program loaded on its devices. Owns the PJRT_LoadedExecutable; move-only;
// must not outlive its client. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pjrt/api.h"
#include "pjrt/device.h"
#include "pjrt/inspect.h"

namespace tp::pjrt {

struct OutputType {
  PJRT_Buffer_Type element_type;
  std::vector<int64_t> dims;
};

class Executable {
 public:
  Executable() = default;
  Executable(const PJRT_Api* api, PJRT_LoadedExecutable* loaded) : api_(api), loaded_(loaded) {}
  Executable(Executable&& o) noexcept : api_(o.api_), loaded_(std::exchange(o.loaded_, nullptr)) {}
  Executable& operator=(Executable&& o) noexcept {
    std::swap(api_, o.api_);
    std::swap(loaded_, o.loaded_);
    return *this;
  }
  ~Executable() {
    if (loaded_) destroy<&PJRT_Api::PJRT_LoadedExecutable_Destroy>(api_, {.executable = loaded_});
  }

  PJRT_LoadedExecutable* raw() const { return loaded_; }
  PJRT_LoadedExecutable* release() { return std::exchange(loaded_, nullptr); }

  // Per device: a sharded output's dims are the shard's. Nothing where the plugin cannot say.
  std::optional<std::vector<OutputType>> output_types() const;
  std::vector<Device> devices() const;  // in the order of execute()'s argument lists
  std::string serialize() const;
  // What the plugin tells about the program; the optimized form only where asked for.
  Inspection inspect(bool optimized) const;

  // Starts the program on all its devices. arguments[d] and outputs[d] have one entry a program
  // argument and output; outputs are owned by the caller. `keep` lists the arguments that must not
  // be donated.
  void execute(std::span<PJRT_Buffer* const* const> arguments, size_t num_arguments,
               std::span<PJRT_Buffer** const> outputs, std::span<const int64_t> keep) const;

 private:
  const PJRT_Api* api_ = nullptr;
  PJRT_LoadedExecutable* loaded_ = nullptr;
};

// `module` is StableHLO text, `options` the bytes of a CompileOptionsProto (compile_options.h).
Executable compile(const PJRT_Api* api, PJRT_Client* client, std::string_view module,
                   std::string_view options);
// `bytes` must come from serialize() of the same plugin build: foreign bytes may load and compute
// garbage.
Executable deserialize(const PJRT_Api* api, PJRT_Client* client, std::string_view bytes);

}  // namespace tp::pjrt
