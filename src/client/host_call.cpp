#include "client/host_call.h"

#include "base/error.h"
#include "base/text.h"
#include "client/pjrt_client.h"
#include "pjrt/custom_call.h"

namespace tp::client {

bool has_host_calls(const ComputationClient& client) {
  // Handlers get addresses: they are host calls only where device memory is host memory.
  auto* c = dynamic_cast<const PjrtClient*>(&client);
  if (!c) return false;
  Capabilities can = c->capabilities();
  return can.has(Fact::kHostCalls) && can.has(Fact::kHostMemory) &&
         pjrt::has_custom_calls(c->plugin().api());
}

void register_host_call(ComputationClient& client, std::string_view name,
                        pjrt::ffi::Handler handler) {
  if (!has_host_calls(client))
    fail(Code::kNotImplemented,
         cat("host call ", name, ": programs on ", client.platform(), " cannot call this process"));
  pjrt::register_custom_call(static_cast<PjrtClient&>(client).plugin(), name, "Host", handler);
}

}  // namespace tp::client
