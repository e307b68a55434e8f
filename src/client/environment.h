// The environment of a compile: all that makes one plugin's programs differ from another's, as one
// hash. Part of the compile key and of every stored program. Reads files and variables; any thread.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "client/registry.h"
#include "pjrt/client.h"

namespace tp::client {

// Names and values, sorted by name.
using Variables = std::vector<std::pair<std::string, std::string>>;

// The variables that the plugin reads, as they are now; those not set are left out. A value that
// names a file of flags brings the digest of what stands in it.
Variables plugin_variables(const PluginSpec& spec);

// Folds platform, plugin file (its bytes), its API and attributes, create and compile
// options, facts, devices, this machine's processor (programs are compiled for its features), the
// flags that enter the key, and `variables`: those of the moment when the plugin was loaded.
Hash128 hash_environment(const pjrt::Client& client, const PluginSpec& spec,
                         const Variables& variables, const Capabilities& capabilities);

}  // namespace tp::client
