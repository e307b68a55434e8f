// The environment of a compile: all that makes one plugin's programs differ from another's, as one
// hash. Part of the compile key and of every stored program. Pure but for the files it looks at.
#pragma once
#include "client/registry.h"
#include "pjrt/client.h"

namespace tp::client {

// Folds platform, plugin file (its bytes), its API and attributes, create and compile
// options, devices, this machine's processor (programs are compiled for its features) and the flags
// that enter the key.
Hash128 hash_environment(const pjrt::Client& client, const PluginSpec& spec);

}  // namespace tp::client
