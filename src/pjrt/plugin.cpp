#include "pjrt/plugin.h"

#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/lock_order.h"
#include "base/text.h"

namespace tp::pjrt {
namespace {

std::string named_value_text(const PJRT_NamedValue& v) {
  switch (v.type) {
    case PJRT_NamedValue_kString:
      return std::string(v.string_value, v.value_size);
    case PJRT_NamedValue_kInt64:
      return cat(v.int64_value);
    case PJRT_NamedValue_kInt64List:
      return join(std::span(v.int64_array_value, v.value_size), ".");
    case PJRT_NamedValue_kFloat:
      return cat(v.float_value);
    case PJRT_NamedValue_kBool:
      return cat(v.bool_value);
  }
  return {};
}

const PJRT_Api* find_api(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* words = dlerror();
    fail(Code::kRuntime, cat("PJRT plugin cannot be loaded: ", words ? words : path.c_str()));
  }
  using GetApi = const PJRT_Api* (*)();
  auto get = reinterpret_cast<GetApi>(dlsym(library, "GetPjrtApi"));
  if (!get)
    fail(Code::kRuntime,
         cat("PJRT plugin ", path, " exports no GetPjrtApi: it is not a PJRT plugin"));
  const PJRT_Api* api = get();
  if (!api) fail(Code::kRuntime, cat("PJRT plugin ", path, ": GetPjrtApi gave no API table"));
  return api;
}

}  // namespace

Plugin* Plugin::open(const std::string& path) {
  const PJRT_Api* api = find_api(path);
  if (int major = api->pjrt_api_version.major_version; major != PJRT_API_MAJOR)
    fail(Code::kRuntime,
         cat("PJRT plugin ", path, " speaks PJRT API ", major, ".",
             api->pjrt_api_version.minor_version, ", expected ", PJRT_API_MAJOR, ".x"),
         "install versions of torch_pjrt and of the plugin that fit each other");
  if (has<&PJRT_Api::PJRT_Plugin_Initialize>(api)) call<&PJRT_Api::PJRT_Plugin_Initialize>(api, {});
  return new Plugin(path, api);
}

const Plugin& Plugin::load(const std::string& path) {
  // Never destroyed, like the libraries. A failed load leaves no entry: the next call tries again.
  static auto* mu = new RankedMutex<LockRank::kPlugins>;
  static auto* loaded = new std::map<std::string, Plugin*>;
  std::error_code missing;
  std::string real = std::filesystem::canonical(path, missing).string();
  if (missing) fail(Code::kRuntime, cat("PJRT plugin library not found: ", path));
  std::lock_guard lock(*mu);
  auto it = loaded->find(real);
  if (it == loaded->end()) it = loaded->emplace(real, open(real)).first;
  return *it->second;
}

std::vector<std::pair<std::string, std::string>> Plugin::attributes() const {
  std::vector<std::pair<std::string, std::string>> out;
  PJRT_Plugin_Attributes_Args args{};
  if (try_call<&PJRT_Api::PJRT_Plugin_Attributes>(api_, args)) return out;
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& v = args.attributes[i];
    out.emplace_back(std::string(v.name, v.name_size), named_value_text(v));
  }
  return out;
}

int extension_type(const PJRT_Extension_Base& e) {
  int type;
  static_assert(sizeof type == sizeof e.type);
  std::memcpy(&type, &e.type, sizeof type);
  return type;
}

const PJRT_Extension_Base* find_extension(const PJRT_Api* api, int type) {
  for (const PJRT_Extension_Base* e = api->extension_start; e; e = e->next)
    if (extension_type(*e) == type) return e;
  return nullptr;
}

}  // namespace tp::pjrt
