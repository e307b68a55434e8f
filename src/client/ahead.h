// Programs that were compiled for a client's devices in a process that had none of them. Any
// thread.
#pragma once
#include <string_view>

#include "client/computation_client.h"

namespace tp::client {

// Loads what the plugin made of `module` (pjrt/topology.h) on the client's devices. The caller says
// that the very same plugin made it: other bytes may load and compute garbage. Throws the plugin's
// words, kInternal where its results are not the module's.
ExecutablePtr load_ahead(ComputationClient& client, std::string_view module,
                         std::string_view bytes);

}  // namespace tp::client
