// Topology: devices that a plugin can compile for though they need not be there, by the name that
// the plugin has for them. Owns the PJRT_TopologyDescription; neither copied nor moved. Any thread.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/named_value.h"
#include "pjrt/plugin.h"
#include "pjrt/unloaded.h"

namespace tp::pjrt {

class Topology {
 public:
  // Throws the plugin's words where it knows no such devices, kNotImplemented where it compiles for
  // none that are not there.
  Topology(const Plugin& plugin, std::string_view name, std::span<const NamedOption> options);
  ~Topology();
  Topology(const Topology&) = delete;

  const Plugin& plugin() const { return plugin_; }
  std::string platform() const;            // "tpu"
  std::vector<std::string> kinds() const;  // by device: "TPU v5 lite"
  // Throws the plugin's words: what it cannot compile, memory that does not suffice.
  Unloaded compile(std::string_view module, const CompileOptions& options) const;

 private:
  const Plugin& plugin_;
  PJRT_TopologyDescription* topology_ = nullptr;
};

}  // namespace tp::pjrt
