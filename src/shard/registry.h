// The shardings and meshes of this process, by text. Thread-safe; what is entered stays.
#pragma once
#include "shard/sharding.h"

namespace tp::shard {

// Notes a new one; gives it back.
Ref enter(Ref s);
// Were shardings over different sets of devices made? Until then no two can meet.
bool several_device_sets();

// A sharding's placement in one word, for files: "0,1,2,3|2,1|0,2,1,3"; and back.
std::string portable_text(const Sharding& s);
Ref parse_portable(std::string_view text);

}  // namespace tp::shard
