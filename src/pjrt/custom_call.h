// Custom calls: C functions of this process that programs of a plugin may call (XLA's typed FFI).
// Any thread.
#pragma once
#include <string_view>

#include "pjrt/ffi.h"
#include "pjrt/plugin.h"

namespace tp::pjrt {

// Can this plugin call back into the process?
bool has_custom_calls(const PJRT_Api* api);

// Makes `handler` the target of `stablehlo.custom_call @name` with api_version 4. `platform` is
// XLA's: "Host", "CUDA".
// Registering a name again is allowed. Throws kNotImplemented where the plugin has no custom calls.
void register_custom_call(const Plugin& plugin, std::string_view name, std::string_view platform,
                          ffi::Handler handler);

}  // namespace tp::pjrt
