// What is known of plugins by the platform that they say they are. Pure.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "base/capabilities.h"
#include "client/registry.h"

namespace tp::client {

// Of a platform without a row: Capabilities{}.
Capabilities of_platform(std::string_view platform);
// A spec's own words over its platform's row. Throws kValue for words that nobody knows.
Capabilities capabilities_of(const PluginSpec& spec, std::string_view platform);

}  // namespace tp::client
