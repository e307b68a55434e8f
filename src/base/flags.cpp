#include "base/flags.h"

#include <array>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tp {
namespace {

constexpr std::array<FlagRow, static_cast<size_t>(Flag::kCount)> kTable{{
    {Flag::kDevice, "PJRT_DEVICE", FlagType::kText, "", InKey::kNo,
     "which PJRT client to use, by exact name; empty: CPU"},
    {Flag::kPlugin, "TORCH_PJRT_PLUGIN", FlagType::kText, "", InKey::kNo,
     "adds a plugin: NAME:/path/to/plugin.so"},
    {Flag::kCpuPlugin, "TORCH_PJRT_CPU_PLUGIN", FlagType::kText, "", InKey::kNo,
     "which CPU plugin wheel serves PJRT_DEVICE=CPU; empty: the first installed one"},
    {Flag::kCpuDeviceCount, "TORCH_PJRT_CPU_DEVICES", FlagType::kInt, "1", InKey::kYes,
     "how many devices the CPU client has"},
    {Flag::kCompilationCacheSize, "XLA_COMPILATION_CACHE_SIZE", FlagType::kInt, "2048", InKey::kNo,
     "programs kept in memory (LRU)"},
    {Flag::kCache, "TORCH_PJRT_CACHE", FlagType::kText, "", InKey::kNo,
     "folder where compiled programs are kept across processes; off: nowhere; empty: "
     "XLA_PERSISTENT_CACHE_PATH, else torch_pjrt in the user's cache folder"},
    {Flag::kPersistentCachePath, "XLA_PERSISTENT_CACHE_PATH", FlagType::kText, "", InKey::kNo,
     "the same folder, by the name that torch_xla gives it"},
    {Flag::kCacheReadOnly, "XLA_PERSISTENT_CACHE_READ_ONLY", FlagType::kBool, "0", InKey::kNo,
     "1: load programs from that folder, store none"},
    {Flag::kCacheSize, "TORCH_PJRT_CACHE_MB", FlagType::kInt, "2048", InKey::kNo,
     "how big that folder may become; the programs unused for longest go first"},
    {Flag::kShapeCacheSize, "XLA_IR_SHAPE_CACHE_SIZE", FlagType::kInt, "12288", InKey::kNo,
     "result types kept in memory (LRU)"},
    {Flag::kXlaFlags, "XLA_FLAGS", FlagType::kText, "", InKey::kYes, "passed on to XLA"},
    {Flag::kVerify, "TORCH_PJRT_VERIFY", FlagType::kInt, "1", InKey::kNo,
     "0: trust keys; 1: compare an entry's graph on its first hit; 2: verify graphs, compare on "
     "every hit"},
    {Flag::kDebug, "TORCH_PJRT_DEBUG", FlagType::kInt, "0", InKey::kNo,
     "0 quiet, 1 compiles, 2 syncs, 3 graphs, 4 modules"},
    {Flag::kInFlight, "TORCH_PJRT_IN_FLIGHT", FlagType::kInt, "8", InKey::kNo,
     "programs that may be in flight before a sync waits for the oldest"},
    {Flag::kDonation, "TORCH_PJRT_DONATION", FlagType::kBool, "1", InKey::kNo,
     "1: a sync may update tensors in place in device memory; 0: old values are kept until the new "
     "ones are there"},
    {Flag::kSlowCompile, "TORCH_PJRT_SLOW_COMPILE_MS", FlagType::kInt, "2000", InKey::kNo,
     "a compile that takes longer says what it is doing"},
    {Flag::kFrames, "TORCH_PJRT_FRAMES", FlagType::kBool, "1", InKey::kNo,
     "0: recorded ops do not keep the user's line"},
    {Flag::kCutWarning, "TORCH_PJRT_CUT_WARNING", FlagType::kInt, "20", InKey::kNo,
     "warns once a line that has cut the graph this often; 0: never"},
    {Flag::kDumpTo, "TORCH_PJRT_DUMP_TO", FlagType::kText, "", InKey::kNo,
     "a folder that gets the graph and the module of each compile"},
    {Flag::kSaveTensorsFile, "XLA_SAVE_TENSORS_FILE", FlagType::kText, "", InKey::kNo,
     "a file that gets the graph of each sync appended"},
    {Flag::kSaveTensorsFormat, "XLA_SAVE_TENSORS_FMT", FlagType::kText, "text", InKey::kNo,
     "what it gets: text, dot or hlo (StableHLO)"},
    {Flag::kIrDebug, "XLA_IR_DEBUG", FlagType::kBool, "0", InKey::kNo,
     "1: ops keep the user's line and their module's path"},
    {Flag::kHloDebug, "XLA_HLO_DEBUG", FlagType::kBool, "0", InKey::kNo,
     "1: the same; both reach the program's metadata in any case"},
    {Flag::kDebugLevel, "PT_XLA_DEBUG_LEVEL", FlagType::kInt, "0", InKey::kNo,
     "torch_xla's dial: used where TORCH_PJRT_DEBUG is lower"},
}};

// A setting that is no number or switch is told to whoever asks for that flag, not to others.
struct Values {
  std::array<std::string, kTable.size()> text;
  std::array<int64_t, kTable.size()> number{};
  std::array<std::optional<Error>, kTable.size()> wrong;
};

int64_t parse_int(const FlagRow& row, const std::string& s) {
  int64_t v = 0;
  auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  if (r.ec != std::errc{} || r.ptr != s.data() + s.size())
    fail(Code::kValue, cat(row.name, ": expected a whole number, found '", s, "'"),
         cat("unset it, or set it like the default: ", row.name, "=", row.fallback));
  return v;
}

int64_t parse_bool(const FlagRow& row, const std::string& s) {
  for (const char* yes : {"1", "true", "on"})
    if (s == yes) return 1;
  for (const char* no : {"0", "false", "off"})
    if (s == no) return 0;
  fail(Code::kValue, cat(row.name, ": expected 0 or 1, found '", s, "'"),
       cat("unset it, or set it like the default: ", row.name, "=", row.fallback));
}

Values read() {
  Values v;
  for (size_t i = 0; i < kTable.size(); ++i) {
    const char* env = std::getenv(kTable[i].name);
    v.text[i] = env && *env ? env : kTable[i].fallback;
    try {
      if (kTable[i].type == FlagType::kInt) v.number[i] = parse_int(kTable[i], v.text[i]);
      if (kTable[i].type == FlagType::kBool) v.number[i] = parse_bool(kTable[i], v.text[i]);
    } catch (const Error& e) {
      v.wrong[i] = e;
    }
  }
  return v;
}

const Values& values() {
  static const Values v = read();
  return v;
}

}  // namespace

std::span<const FlagRow> flag_table() { return kTable; }
const std::string& flag_text(Flag f) { return values().text[static_cast<size_t>(f)]; }
int64_t flag_int(Flag f) {
  const Values& v = values();
  auto i = static_cast<size_t>(f);
  if (v.wrong[i]) [[unlikely]]
    throw Error(*v.wrong[i]);
  return v.number[i];
}
bool flag_bool(Flag f) { return flag_int(f) != 0; }

std::string flags_in_key() {
  std::string s;
  for (const FlagRow& row : kTable)
    if (row.in_key == InKey::kYes) {
      if (row.type != FlagType::kText) static_cast<void>(flag_int(row.flag));  // throws
      s += cat(row.name, "=", flag_text(row.flag), "\n");
    }
  return s;
}

}  // namespace tp
