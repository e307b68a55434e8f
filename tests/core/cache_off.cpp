// The suite keeps no programs on disk, so that counts of compiles mean what they say and nobody's
// own folder is touched. Tests of the disk cache set a folder of their own.
#include <gtest/gtest.h>

#include "base/cache_place.h"

namespace tp {
namespace {

struct CacheOff : testing::Environment {
  void SetUp() override { set_cache_place({}); }
};
const auto* const kCacheOff = testing::AddGlobalTestEnvironment(new CacheOff);

}  // namespace
}  // namespace tp
