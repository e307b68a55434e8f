#include "client/registry_table.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tp::client {
namespace {

std::pair<std::string, std::string> parse_plugin_flag(std::string_view flag) {
  size_t colon = flag.find(':');
  if (colon == flag.npos || colon == 0 || colon + 1 == flag.size())
    fail(Code::kValue, cat("TORCH_PJRT_PLUGIN: expected NAME:PATH, found '", flag, "'"),
         "set it like TORCH_PJRT_PLUGIN=MYCHIP:/path/to/plugin.so and choose it with "
         "PJRT_DEVICE=MYCHIP");
  return {std::string(flag.substr(0, colon)), std::string(flag.substr(colon + 1))};
}

}  // namespace

Table::Table() {
  PluginSpec placeholder;
  placeholder.name = kDefaultDevice;
  placeholder.how_to_install = "pip install fastatomstruct-xla-cpu";
  specs_.emplace(kDefaultDevice, placeholder);
}

void Table::put(PluginSpec spec) {
  if (spec.name.empty())
    fail(Code::kValue, "a plugin needs a name: the value of PJRT_DEVICE that chooses it");
  std::string name = spec.name;
  specs_[name] = std::move(spec);
}

bool Table::has(const std::string& name) const {
  auto it = specs_.find(name);
  return it != specs_.end() && !it->second.library_path.empty();
}

Table Table::with(std::string_view plugin_flag) const {
  Table t = *this;
  if (plugin_flag.empty()) return t;
  auto [name, path] = parse_plugin_flag(plugin_flag);
  PluginSpec& spec = t.specs_[name];
  spec.name = name;
  spec.library_path = path;
  spec.mistakes.reset();
  spec.capabilities.clear();
  return t;
}

std::vector<std::string> Table::names(std::string_view plugin_flag) const {
  std::vector<std::string> out;
  for (const auto& [name, spec] : with(plugin_flag).specs_)
    if (!spec.library_path.empty()) out.push_back(name);
  return out;
}

PluginSpec Table::find(const std::string& name, std::string_view plugin_flag) const {
  Table all = with(plugin_flag);
  auto it = all.specs_.find(name);
  if (it == all.specs_.end()) {
    auto known = names(plugin_flag);
    fail(Code::kValue,
         cat("PJRT_DEVICE=", name,
             ": no such device; registered: ", known.empty() ? "none" : join(known, ", ")),
         cat("set PJRT_DEVICE to a registered name (exactly), or add a plugin: install a package "
             "with an entry "
             "point in the group torch_pjrt.plugins, torch_xla.plugins or jax_plugins, or set "
             "TORCH_PJRT_PLUGIN=",
             name, ":/path/to/plugin.so"));
  }
  if (it->second.library_path.empty())
    fail(Code::kRuntime,
         cat("PJRT_DEVICE=", name, ": ",
             it->second.problem.empty() ? "its plugin is not installed" : it->second.problem),
         it->second.how_to_install);
  return it->second;
}

std::unique_ptr<ComputationClient> start_plugin(const PluginSpec& spec,
                                                const Processes& processes) {
  try {
    return make_pjrt_client(spec, processes);
  } catch (const Error& e) {
    fail(Code::kRuntime, cat("PJRT_DEVICE=", spec.name, " cannot start: ", e.message()),
         spec.how_to_install);
  }
}

}  // namespace tp::client
