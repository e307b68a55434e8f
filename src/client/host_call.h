// Host calls: C functions of this process that programs may call where they run (host ops). Any
// thread.
#pragma once
#include <string_view>

#include "client/computation_client.h"
#include "pjrt/ffi.h"

namespace tp::client {

// Can the client's programs call back into this process?
bool has_host_calls(const ComputationClient& client);

// Makes `handler` (pjrt/ffi.h) the target of `stablehlo.custom_call @name` with api_version 4. Once
// a name and process is enough. Throws kNotImplemented where !has_host_calls().
void register_host_call(ComputationClient& client, std::string_view name,
                        pjrt::ffi::Handler handler);

}  // namespace tp::client
