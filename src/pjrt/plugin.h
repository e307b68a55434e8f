// Plugin: one loaded PJRT library. All loads of one path share it and it is never unloaded (its
// threads run until the process ends). Thread-safe.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pjrt/api.h"

namespace tp::pjrt {

class Plugin {
 public:
  // Opens and initializes the library at `path`, or gives the one already loaded from there. Throws
  // kRuntime with one clear message: no such file, the loader's words, not a PJRT plugin, its own
  // words.
  static const Plugin& load(const std::string& path);

  const PJRT_Api* api() const { return api_; }
  const std::string& path() const { return path_; }  // resolved: symbolic links followed
  int api_major() const { return api_->pjrt_api_version.major_version; }
  int api_minor() const { return api_->pjrt_api_version.minor_version; }
  // What the plugin says about itself, as text: {"stablehlo_current_version", "1.13.3"}.
  std::vector<std::pair<std::string, std::string>> attributes() const;

 private:
  Plugin(std::string path, const PJRT_Api* api) : path_(std::move(path)), api_(api) {}
  static Plugin* open(const std::string& path);
  std::string path_;
  const PJRT_Api* api_;
};

// An extension of an API table (PJRT_Extension_Type), or null.
const PJRT_Extension_Base* find_extension(const PJRT_Api* api, int type);
// As a number: a newer plugin has types that the header's enum does not.
int extension_type(const PJRT_Extension_Base& e);

}  // namespace tp::pjrt
