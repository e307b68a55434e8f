#include "base/flags.h"

#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace tp {
namespace {

bool is_plugin(std::string_view s) {
  size_t colon = s.find(':');
  return s.empty() || (colon != s.npos && colon > 0 && colon + 1 < s.size());
}
bool is_format(std::string_view s) { return s == "text" || s == "dot" || s == "hlo"; }

bool is_tier(std::string_view s) {
  return s == "off" || s == "small" || s == "varying" || s == "on";
}

bool is_level(std::string_view s) {
  return s.empty() || (s.size() == 2 && s[0] == 'O' && s[1] >= '0' && s[1] <= '3');
}

constexpr int64_t kMostDevices = 127;             // c10::DeviceIndex is one byte
constexpr int64_t kMostMegabytes = 1ll << 40;     // in bytes, that fits an int64_t
constexpr int64_t kMostMilliseconds = 1ll << 40;  // likewise in nanoseconds

constexpr FlagRow within(FlagRow row, int64_t least, int64_t most) {
  row.least = least;
  row.most = most;
  return row;
}
constexpr FlagRow one_of(FlagRow row, bool (*fits)(std::string_view), const char* allowed) {
  row.fits = fits;
  row.allowed = allowed;
  return row;
}

constexpr std::array<FlagRow, static_cast<size_t>(Flag::kCount)> kTable{{
    {Flag::kDevice, "PJRT_DEVICE", FlagType::kText, "", InKey::kNo,
     "which PJRT client to use, by exact name; empty: CPU"},
    one_of({Flag::kPlugin, "TORCH_PJRT_PLUGIN", FlagType::kText, "", InKey::kNo,
            "adds a plugin: NAME:/path/to/plugin.so"},
           is_plugin, "NAME:/path/to/plugin.so"),
    {Flag::kCpuPlugin, "TORCH_PJRT_CPU_PLUGIN", FlagType::kText, "", InKey::kNo,
     "which CPU plugin wheel serves PJRT_DEVICE=CPU; empty: the first installed one"},
    within({Flag::kCpuDeviceCount, "TORCH_PJRT_CPU_DEVICES", FlagType::kInt, "1", InKey::kYes,
            "how many devices the CPU client has"},
           1, kMostDevices),
    within({Flag::kCompilationCacheSize, "XLA_COMPILATION_CACHE_SIZE", FlagType::kInt, "2048",
            InKey::kNo, "programs kept in memory (LRU)"},
           1, INT64_MAX),
    {Flag::kCache, "TORCH_PJRT_CACHE", FlagType::kText, "", InKey::kNo,
     "folder where compiled programs are kept across processes; off: nowhere; empty: "
     "XLA_PERSISTENT_CACHE_PATH, else torch_pjrt in the user's cache folder"},
    {Flag::kPersistentCachePath, "XLA_PERSISTENT_CACHE_PATH", FlagType::kText, "", InKey::kNo,
     "the same folder, by the name that torch_xla gives it"},
    {Flag::kCacheReadOnly, "XLA_PERSISTENT_CACHE_READ_ONLY", FlagType::kBool, "0", InKey::kNo,
     "1: load programs from that folder, store none"},
    {Flag::kCacheShared, "TORCH_PJRT_CACHE_SHARED", FlagType::kBool, "0", InKey::kNo,
     "1: load programs from that folder whoever owns it or may write to it, store none; they are "
     "run "
     "as machine code"},
    within({Flag::kCacheSize, "TORCH_PJRT_CACHE_MB", FlagType::kInt, "2048", InKey::kNo,
            "how big that folder may become; the programs unused for longest go first"},
           0, kMostMegabytes),
    within({Flag::kShapeCacheSize, "XLA_IR_SHAPE_CACHE_SIZE", FlagType::kInt, "12288", InKey::kNo,
            "result types kept in memory (LRU)"},
           1, INT64_MAX),
    {Flag::kXlaFlags, "XLA_FLAGS", FlagType::kText, "", InKey::kPlugin,
     "read by XLA when the device is first used"},
    within({Flag::kVerify, "TORCH_PJRT_VERIFY", FlagType::kInt, "1", InKey::kNo,
            "2: check the order and the operands of each graph before it is looked up; 0 and 1: do "
            "not"},
           0, 2),
    {Flag::kDebug, "TORCH_PJRT_DEBUG", FlagType::kInt, "0", InKey::kNo,
     "0 quiet, 1 compiles, 2 syncs, 3 graphs, 4 modules"},
    {Flag::kInFlight, "TORCH_PJRT_IN_FLIGHT", FlagType::kInt, "8", InKey::kNo,
     "programs that may be in flight before a sync waits for the oldest"},
    {Flag::kDonation, "TORCH_PJRT_DONATION", FlagType::kBool, "1", InKey::kNo,
     "1: a sync may update tensors in place in device memory; 0: old values are kept until the new "
     "ones are there"},
    within({Flag::kSlowCompile, "TORCH_PJRT_SLOW_COMPILE_MS", FlagType::kInt, "2000", InKey::kNo,
            "a compile that takes longer says what it is doing"},
           0, kMostMilliseconds),
    {Flag::kFrames, "TORCH_PJRT_FRAMES", FlagType::kBool, "1", InKey::kNo,
     "0: recorded ops do not keep the user's line"},
    {Flag::kCutWarning, "TORCH_PJRT_CUT_WARNING", FlagType::kInt, "20", InKey::kNo,
     "warns once a line that has cut the graph this often; 0: never"},
    {Flag::kDumpTo, "TORCH_PJRT_DUMP_TO", FlagType::kText, "", InKey::kNo,
     "a folder that gets the graph and the module of each compile"},
    {Flag::kSaveTensorsFile, "XLA_SAVE_TENSORS_FILE", FlagType::kText, "", InKey::kNo,
     "a file that gets the graph of each sync appended"},
    one_of({Flag::kSaveTensorsFormat, "XLA_SAVE_TENSORS_FMT", FlagType::kText, "text", InKey::kNo,
            "what it gets: text, dot or hlo (StableHLO)"},
           is_format, "text, dot or hlo"),
    {Flag::kIrDebug, "XLA_IR_DEBUG", FlagType::kBool, "0", InKey::kNo,
     "1: ops keep the user's line and their module's path"},
    {Flag::kHloDebug, "XLA_HLO_DEBUG", FlagType::kBool, "0", InKey::kNo,
     "1: the same; both reach the program's metadata in any case"},
    {Flag::kDebugLevel, "PT_XLA_DEBUG_LEVEL", FlagType::kInt, "0", InKey::kNo,
     "torch_xla's dial: used where TORCH_PJRT_DEBUG is lower"},
    one_of(
        {Flag::kTiers, "TORCH_PJRT_TIERS", FlagType::kText, "on", InKey::kNo,
         "which graphs PyTorch's CPU kernels compute where no program is there yet (CPU plugins): "
         "off: none; small: those of a few whole-number ops; varying: also what a line brings "
         "that compiled another graph before; on: all"},
        is_tier, "off, small, varying or on"),
    {Flag::kShardy, "TORCH_PJRT_SHARDY", FlagType::kBool, "1", InKey::kNo,
     "1: programs of several devices say their shardings in Shardy's form; 0: in GSPMD's, for "
     "plugins that do not know it"},
    within(
        {Flag::kSplitNodes, "TORCH_PJRT_SPLIT_NODES", FlagType::kInt, "512", InKey::kNo,
         "a graph of so many ops that repeats itself (a loop without a sync) runs as programs of "
         "its rounds; 0: every graph is one program"},
        0, INT64_MAX),
    within({Flag::kCutNodes, "TORCH_PJRT_CUT_NODES", FlagType::kInt, "4096", InKey::kNo,
            "a loop that has recorded so many ops without a sync is run at the end of a round, and "
            "anything else at eight times as many; 0: never"},
           0, 1ll << 40),
    one_of(
        {Flag::kOptimizationLevel, "TORCH_PJRT_OPTIMIZATION_LEVEL", FlagType::kText, "",
         InKey::kYes,
         "how hard the plugin's compiler tries, O0 to O3, where it has levels (TPU, CUDA); lower "
         "compiles faster; empty: the plugin's own choice"},
        is_level, "O0, O1, O2 or O3"),
    {Flag::kHostKernels, "TORCH_PJRT_HOST_KERNELS", FlagType::kBool, "1", InKey::kYes,
     "1: programs for CPUs call PyTorch's kernels where those are faster (convolutions, ...)"},
}};

// A setting that is no number or switch is told to whoever asks for that flag, not to others.
struct Values {
  std::array<std::string, kTable.size()> text;
  std::array<int64_t, kTable.size()> number{};
  std::array<std::optional<Error>, kTable.size()> wrong;
};

[[noreturn]] void refuse(const FlagRow& row, std::string_view found) {
  fail(Code::kValue, cat(row.name, ": expected ", allowed_values(row), ", found '", found, "'"),
       *row.fallback ? cat("unset it, or set it like the default: ", row.name, "=", row.fallback)
                     : "unset it");
}

int64_t parse_int(const FlagRow& row, const std::string& s) {
  int64_t v = 0;
  auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  bool number = r.ec == std::errc{} && r.ptr == s.data() + s.size();
  if (!number || v < row.least || v > row.most) refuse(row, s);
  return v;
}

int64_t parse_bool(const FlagRow& row, const std::string& s) {
  for (const char* yes : {"1", "true", "on"})
    if (s == yes) return 1;
  for (const char* no : {"0", "false", "off"})
    if (s == no) return 0;
  refuse(row, s);
}

void read_row(Values& v, size_t i) {
  const FlagRow& row = kTable[i];
  const char* env = std::getenv(row.name);
  v.text[i] = env && *env ? env : row.fallback;
  try {
    if (row.type == FlagType::kInt) v.number[i] = parse_int(row, v.text[i]);
    if (row.type == FlagType::kBool) v.number[i] = parse_bool(row, v.text[i]);
    if (row.fits && !row.fits(v.text[i])) refuse(row, v.text[i]);
  } catch (const Error& e) {
    v.wrong[i] = e;
  }
}

Values read() {
  Values v;
  for (size_t i = 0; i < kTable.size(); ++i) read_row(v, i);
  return v;
}

const Values& values() {
  static const Values v = read();
  return v;
}

}  // namespace

std::span<const FlagRow> flag_table() { return kTable; }

std::string allowed_values(const FlagRow& row) {
  if (row.type == FlagType::kText) return row.allowed;
  if (row.type == FlagType::kBool) return "0 or 1";
  if (row.most == INT64_MAX) return cat("a whole number of at least ", row.least);
  return cat("a whole number from ", row.least, " to ", row.most);
}

void check_flags() {
  std::string all;
  for (const std::optional<Error>& e : read().wrong)
    if (e) all += cat(all.empty() ? "" : "\n", e->what());
  if (!all.empty()) fail(Code::kValue, all);
}

namespace {
size_t checked(const Values& v, Flag f) {
  auto i = static_cast<size_t>(f);
  if (v.wrong[i]) [[unlikely]]
    throw Error(*v.wrong[i]);
  return i;
}
}  // namespace

const std::string& flag_text(Flag f) { return values().text[checked(values(), f)]; }
int64_t flag_int(Flag f) { return values().number[checked(values(), f)]; }
bool flag_bool(Flag f) { return flag_int(f) != 0; }

std::string flags_in_key() {
  std::string s;
  for (const FlagRow& row : kTable)
    if (row.in_key == InKey::kYes) s += cat(row.name, "=", flag_text(row.flag), "\n");
  return s;
}

}  // namespace tp
