// The one way to call the PJRT C API. call<&PJRT_Api::PJRT_Entry>(api, {.field = ...}) zero-fills
// the arguments, sets struct_size, checks that the plugin's table has the entry, and throws
// tp::Error with the C function's name and the plugin's code and words. The table lives for the
// process; any thread.
#pragma once
#include <pjrt_c_api.h>

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

// The fields that a call does not name are zero on purpose.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace tp::pjrt {

// What a plugin says where it fails.
struct Failure {
  PJRT_Error_Code code;
  std::string words;
};

std::string_view code_name(PJRT_Error_Code code);  // "RESOURCE_EXHAUSTED"
Code to_code(PJRT_Error_Code code);
// "PJRT_Client_Compile failed with INVALID_ARGUMENT [3]: words"
Error to_error(std::string_view function, const Failure& failure);
// Reads and frees a plugin's error; nothing where `error` is null.
std::optional<Failure> take(const PJRT_Api* api, PJRT_Error* error);

// A fork leaves the plugin's threads behind: whatever is asked of it in the child may wait for them
// forever. From then on calls throw, and destructors leave things where they are.
void lose_plugins();

namespace detail {

inline std::atomic<bool> plugins_lost{false};
[[noreturn]] void fail_lost();
inline void check_not_lost() {
  if (plugins_lost.load(std::memory_order_relaxed)) [[unlikely]]
    fail_lost();
}

template <class T>
struct Entry;
template <class Args>
struct Entry<PJRT_Error* (*PJRT_Api::*)(Args*)> {
  using args = Args;
};

// The entry's C name, read out of the compiler's spelling of this function ("... Fn =
// &PJRT_Api::PJRT_X ...").
template <auto Fn>
constexpr std::string_view name() {
  std::string_view s = __PRETTY_FUNCTION__;
  s.remove_prefix(s.find("PJRT_Api::") + 10);
  return s.substr(0, s.find_first_of("];,> "));
}

[[noreturn]] void fail_missing(const PJRT_Api* api, std::string_view function);

}  // namespace detail

template <auto Fn>
using ArgsOf = typename detail::Entry<decltype(Fn)>::args;

// Is the plugin's table new enough to hold this entry, and is the entry filled?
template <auto Fn>
bool has(const PJRT_Api* api) {
  auto at = reinterpret_cast<const char*>(&(api->*Fn)) - reinterpret_cast<const char*>(api);
  return static_cast<size_t>(at) + sizeof(void*) <= api->struct_size && api->*Fn != nullptr;
}

// For callers that tolerate some failures. Fields not named in `args` must be zero.
template <auto Fn>
std::optional<Failure> try_call(const PJRT_Api* api, ArgsOf<Fn>& args) {
  if (!has<Fn>(api)) [[unlikely]]
    return Failure{PJRT_Error_Code_UNIMPLEMENTED, "the plugin's API table has no such entry"};
  detail::check_not_lost();
  args.struct_size = sizeof(args);
  PJRT_Error* error = (api->*Fn)(&args);
  return error ? take(api, error) : std::nullopt;
}

// Gives the arguments back, outputs filled in.
template <auto Fn>
ArgsOf<Fn> call(const PJRT_Api* api, ArgsOf<Fn> args) {
  if (!has<Fn>(api)) [[unlikely]]
    detail::fail_missing(api, detail::name<Fn>());
  detail::check_not_lost();
  args.struct_size = sizeof(args);
  if (PJRT_Error* error = (api->*Fn)(&args)) [[unlikely]]
    throw to_error(detail::name<Fn>(), *take(api, error));
  return args;
}

// For destructors: never throws; a failure to free is dropped.
template <auto Fn>
void destroy(const PJRT_Api* api, ArgsOf<Fn> args) noexcept {
  if (!has<Fn>(api) || detail::plugins_lost.load(std::memory_order_relaxed)) return;
  args.struct_size = sizeof(args);
  if (PJRT_Error* error = (api->*Fn)(&args)) take(api, error);
}

}  // namespace tp::pjrt
