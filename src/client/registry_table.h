// The registry's table of plugins by name, and the start of one. Private to client/ and its tests.
// The caller locks.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "client/registry.h"

namespace tp::client {

inline constexpr const char* kDefaultDevice = "CPU";

class Table {
 public:
  Table();  // holds one placeholder: the default device, its library not known yet
  void put(PluginSpec spec);
  bool has(const std::string& name) const;  // placeholders do not count
  // `plugin_flag` is TORCH_PJRT_PLUGIN's NAME:PATH, or empty; it adds an entry or moves one to
  // another library.
  std::vector<std::string> names(std::string_view plugin_flag = {}) const;
  // By exact name. Throws kValue naming all entries where there is none, kRuntime for a
  // placeholder.
  PluginSpec find(const std::string& name, std::string_view plugin_flag = {}) const;

 private:
  Table with(std::string_view plugin_flag) const;
  std::map<std::string, PluginSpec> specs_;  // a placeholder has no library path
};

// Throws kRuntime: the name, the plugin's own words, and what to install.
std::unique_ptr<ComputationClient> start_plugin(const PluginSpec& spec,
                                                const Processes& processes = {});

}  // namespace tp::client
