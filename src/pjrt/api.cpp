#include "pjrt/api.h"

#include <unistd.h>

#include "base/text.h"
#include "pjrt/ffi.h"

namespace tp::pjrt {

std::string_view code_name(PJRT_Error_Code code) {
  static constexpr std::string_view kNames[] = {"OK",
                                                "CANCELLED",
                                                "UNKNOWN",
                                                "INVALID_ARGUMENT",
                                                "DEADLINE_EXCEEDED",
                                                "NOT_FOUND",
                                                "ALREADY_EXISTS",
                                                "PERMISSION_DENIED",
                                                "RESOURCE_EXHAUSTED",
                                                "FAILED_PRECONDITION",
                                                "ABORTED",
                                                "OUT_OF_RANGE",
                                                "UNIMPLEMENTED",
                                                "INTERNAL",
                                                "UNAVAILABLE",
                                                "DATA_LOSS",
                                                "UNAUTHENTICATED"};
  auto i = static_cast<size_t>(code);
  return i < std::size(kNames) ? kNames[i] : "UNKNOWN";
}

Code to_code(PJRT_Error_Code code) {
  switch (code) {
    case PJRT_Error_Code_RESOURCE_EXHAUSTED:
      return Code::kOutOfMemory;
    case PJRT_Error_Code_UNIMPLEMENTED:
      return Code::kNotImplemented;
    default:
      return Code::kRuntime;
  }
}

Error to_error(std::string_view function, const Failure& f) {
  if (auto raised = ffi::raised_by_handler(f.words)) return *raised;
  return Error(to_code(f.code), cat(function, " failed with ", code_name(f.code), " [",
                                    static_cast<int>(f.code), "]: ", f.words));
}

std::optional<Failure> take(const PJRT_Api* api, PJRT_Error* error) {
  if (!error) return std::nullopt;
  Failure f{PJRT_Error_Code_UNKNOWN, {}};
  PJRT_Error_GetCode_Args code{};
  code.struct_size = sizeof(code);
  code.error = error;
  // Asking for the code can itself fail; that second error is freed and the first one kept.
  PJRT_Error* second = api->PJRT_Error_GetCode(&code);
  if (!second) f.code = code.code;

  PJRT_Error_Message_Args message{};
  message.struct_size = sizeof(message);
  message.error = error;
  api->PJRT_Error_Message(&message);
  f.words.assign(message.message, message.message_size);

  for (PJRT_Error* e : {second, error}) {
    if (!e) continue;
    PJRT_Error_Destroy_Args args{};
    args.struct_size = sizeof(args);
    args.error = e;
    api->PJRT_Error_Destroy(&args);
  }
  return f;
}

void lose_plugins() { detail::plugins_lost.store(true); }

namespace detail {

void fail_lost() {
  fail(Code::kRuntime,
       cat("the device cannot be used in this process (", getpid(),
           "): it was forked after the device had been started, and the plugin's threads did not "
           "come along"),
       "start workers with the 'spawn' or 'forkserver' method, or fork before the first use of the "
       "device");
}

void fail_missing(const PJRT_Api* api, std::string_view function) {
  fail(Code::kNotImplemented,
       cat(function, ": the plugin does not have this function (its PJRT API is ",
           api->pjrt_api_version.major_version, ".", api->pjrt_api_version.minor_version, ")"),
       "install a newer version of the plugin");
}

}  // namespace detail
}  // namespace tp::pjrt
