#include "pjrt/custom_call.h"

#include "base/text.h"

namespace tp::pjrt {
namespace {

// The FFI extension's part of the API table. Plugin wheels ship no header for it: this is its
// layout, which no version has changed (checked with PJRT API 0.81, 0.106 and 0.115).
struct RegisterHandlerArgs {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  ffi::Handler handler;
  const char* platform_name;
  size_t platform_name_size;
  int traits;
};
struct FfiExtension {
  PJRT_Extension_Base base;
  void* type_register;
  void* user_data_add;
  PJRT_Error* (*register_handler)(RegisterHandlerArgs*);
};

const FfiExtension* find(const PJRT_Api* api) {
  const PJRT_Extension_Base* e = find_extension(api, PJRT_Extension_Type_FFI);
  if (!e || e->struct_size < sizeof(FfiExtension)) return nullptr;
  auto* extension = reinterpret_cast<const FfiExtension*>(e);
  return extension->register_handler ? extension : nullptr;
}

}  // namespace

bool has_custom_calls(const PJRT_Api* api) { return find(api) != nullptr; }

void register_custom_call(const Plugin& plugin, std::string_view name, std::string_view platform,
                          ffi::Handler handler) {
  const FfiExtension* extension = find(plugin.api());
  if (!extension)
    fail(Code::kNotImplemented, cat("custom call ", name, ": PJRT plugin ", plugin.path(),
                                    " cannot call back into this process"));
  RegisterHandlerArgs args{
      sizeof(args), name.data(), name.size(), handler, platform.data(), platform.size(), 0};
  if (auto failure = take(plugin.api(), extension->register_handler(&args)))
    throw to_error("PJRT_FFI_Register_Handler", *failure);
}

}  // namespace tp::pjrt
