// The flag table: every switch is one row (name, type, default, help, whether it enters the compile
// key, what is allowed). Read once, at the first use of any flag; constant afterwards, so reads
// need no lock.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tp {

enum class FlagType : unsigned char { kBool, kInt, kText };
// kPlugin: the plugin reads the variable, so its value enters the key when the client is made
// (client/environment.h), not when flags are read.
enum class InKey : unsigned char { kNo, kYes, kPlugin };

enum class Flag : unsigned char {
  kDevice,                // PJRT_DEVICE
  kPlugin,                // TORCH_PJRT_PLUGIN
  kCpuPlugin,             // TORCH_PJRT_CPU_PLUGIN
  kCpuDeviceCount,        // TORCH_PJRT_CPU_DEVICES
  kCompilationCacheSize,  // XLA_COMPILATION_CACHE_SIZE
  kCache,                 // TORCH_PJRT_CACHE
  kPersistentCachePath,   // XLA_PERSISTENT_CACHE_PATH
  kCacheReadOnly,         // XLA_PERSISTENT_CACHE_READ_ONLY
  kCacheShared,           // TORCH_PJRT_CACHE_SHARED
  kCacheSize,             // TORCH_PJRT_CACHE_MB
  kShapeCacheSize,        // XLA_IR_SHAPE_CACHE_SIZE
  kXlaFlags,              // XLA_FLAGS
  kVerify,                // TORCH_PJRT_VERIFY
  kDebug,                 // TORCH_PJRT_DEBUG
  kInFlight,              // TORCH_PJRT_IN_FLIGHT
  kDonation,              // TORCH_PJRT_DONATION
  kSlowCompile,           // TORCH_PJRT_SLOW_COMPILE_MS
  kFrames,                // TORCH_PJRT_FRAMES
  kCutWarning,            // TORCH_PJRT_CUT_WARNING
  kDumpTo,                // TORCH_PJRT_DUMP_TO
  kSaveTensorsFile,       // XLA_SAVE_TENSORS_FILE
  kSaveTensorsFormat,     // XLA_SAVE_TENSORS_FMT
  kIrDebug,               // XLA_IR_DEBUG
  kHloDebug,              // XLA_HLO_DEBUG
  kDebugLevel,            // PT_XLA_DEBUG_LEVEL
  kTiers,                 // TORCH_PJRT_TIERS
  kShardy,                // TORCH_PJRT_SHARDY
  kSplitNodes,            // TORCH_PJRT_SPLIT_NODES
  kCutNodes,              // TORCH_PJRT_CUT_NODES
  kOptimizationLevel,     // TORCH_PJRT_OPTIMIZATION_LEVEL
  kHostKernels,           // TORCH_PJRT_HOST_KERNELS
  kCount
};

struct FlagRow {
  Flag flag;
  const char* name;  // the environment variable
  FlagType type;
  const char* fallback;
  InKey in_key;
  const char* help;
  int64_t least = 0, most = INT64_MAX;  // of a number
  // Of a text, where not all are allowed: the test, and its words.
  bool (*fits)(std::string_view) = nullptr;
  const char* allowed = "any text";
};

std::span<const FlagRow> flag_table();
// What the row's variable may be set to, for people: "a whole number of at least 1".
std::string allowed_values(const FlagRow& row);
// Throws kValue where a variable has a value that its row does not allow: one line for each, with
// variable, value and what is allowed. Reads the environment anew.
void check_flags();
const std::string& flag_text(Flag f);
int64_t flag_int(Flag f);
bool flag_bool(Flag f);
// "name=value" of every flag of InKey::kYes, for the environment hash.
std::string flags_in_key();

}  // namespace tp
