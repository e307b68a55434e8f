// XLA's OpSharding, as plugins tell it: bytes of a protobuf, read by hand. Pure functions.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "shard/sharding.h"

namespace tp::shard {

// What one OpSharding says of `partitions` partitions; throws kRuntime where it is of a kind that
// no tensor of ours has (manual, one device).
Tiles read_op_sharding(std::string_view bytes, size_t partitions);
// The shardings of a program's results, from its optimized form (an HloModuleProtoWithConfig);
// nothing where it does not say.
std::optional<std::vector<Tiles>> read_output_shardings(std::string_view program, size_t results,
                                                        size_t partitions);

}  // namespace tp::shard
