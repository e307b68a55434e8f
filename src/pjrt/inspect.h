// What a plugin tells about a compiled program: memory, costs, its optimized form. Each is optional
// in PJRT; what a plugin does not tell is empty. Any thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/api.h"

namespace tp::pjrt {

struct CompiledMemory {
  int64_t arguments, outputs, temporaries, aliased, code, peak;
};

struct Inspection {
  std::optional<CompiledMemory> memory;
  std::vector<std::pair<std::string, double>> costs;
  std::string optimized, optimized_format;
};

Inspection inspect(const PJRT_Api* api, PJRT_Executable* executable, bool optimized);

}  // namespace tp::pjrt
