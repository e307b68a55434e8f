// Options as the C API takes them: named values that point into `options`, which must outlive them.
// Pure.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/api.h"
#include "pjrt/compile_options.h"

namespace tp::pjrt {

using NamedOption = std::pair<std::string, OptionValue>;
std::vector<PJRT_NamedValue> named_values(std::span<const NamedOption> options);

}  // namespace tp::pjrt
