#include "pjrt/compile_options.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace tp::pjrt {
namespace {

// The protobuf wire: a field is a tag (number * 8 + wire type) and a value.
enum Wire : unsigned { kVarint = 0, kFixed64 = 1, kBytes = 2 };

void put_varint(std::string& s, uint64_t v) {
  for (; v >= 0x80; v >>= 7) s.push_back(static_cast<char>(v | 0x80));
  s.push_back(static_cast<char>(v));
}
void put_int(std::string& s, unsigned field, int64_t v) {
  put_varint(s, field << 3 | kVarint);
  put_varint(s, static_cast<uint64_t>(v));
}
void put_bytes(std::string& s, unsigned field, std::string_view v) {
  put_varint(s, field << 3 | kBytes);
  put_varint(s, v.size());
  s.append(v);
}
void put_double(std::string& s, unsigned field, double v) {
  put_varint(s, field << 3 | kFixed64);
  auto bits = std::bit_cast<uint64_t>(v);
  for (int i = 0; i < 8; ++i) s.push_back(static_cast<char>(bits >> (8 * i)));
}
void put_flags(std::string& s, unsigned field, const std::vector<bool>& v) {
  if (v.empty()) return;
  std::string packed;
  for (bool b : v) packed.push_back(b ? 1 : 0);
  put_bytes(s, field, packed);
}

// DeviceAssignmentProto: one entry a partition, each with the ids of all its replicas.
std::string device_assignment(const CompileOptions& o) {
  if (static_cast<int64_t>(o.device_ids.size()) != o.num_replicas * o.num_partitions)
    fail(Code::kValue, cat("compile options: ", o.device_ids.size(), " devices assigned, expected ",
                           o.num_replicas, " replicas x ", o.num_partitions, " partitions"));
  std::string s;
  put_int(s, 1, o.num_replicas);
  put_int(s, 2, o.num_partitions);
  for (int64_t p = 0; p < o.num_partitions; ++p) {
    std::string ids, entry;
    for (int64_t r = 0; r < o.num_replicas; ++r)
      put_varint(ids, static_cast<uint64_t>(o.device_ids[r * o.num_partitions + p]));
    put_bytes(entry, 1, ids);
    put_bytes(s, 3, entry);
  }
  return s;
}

// OptionOverrideProto: a oneof, so that a default value is written too.
std::string override_value(const OptionValue& v) {
  std::string s;
  if (auto* text = std::get_if<std::string>(&v)) put_bytes(s, 1, *text);
  if (auto* flag = std::get_if<bool>(&v)) put_int(s, 2, *flag);
  if (auto* number = std::get_if<int64_t>(&v)) put_int(s, 3, *number);
  if (auto* real = std::get_if<double>(&v)) put_double(s, 4, *real);
  return s;
}

// ExecutableBuildOptionsProto. Without num_replicas and num_partitions plugins abort the process.
std::string build_options(const CompileOptions& o) {
  std::string s;
  put_int(s, 1, -1);  // device_ordinal: none, the assignment says
  put_int(s, 4, o.num_replicas);
  put_int(s, 5, o.num_partitions);
  if (o.use_spmd_partitioning) put_int(s, 6, 1);
  if (o.use_auto_spmd_partitioning) put_int(s, 7, 1);
  if (!o.device_ids.empty()) put_bytes(s, 9, device_assignment(o));
  put_flags(s, 12, o.propagate_to_output);
  put_flags(s, 18, o.propagate_to_parameters);
  if (o.use_shardy_partitioner) put_int(s, 19, 1);
  if (o.optimization_level) put_int(s, 24, o.optimization_level);
  return s;
}

}  // namespace

int level_number(std::string_view level) {
  return level.empty() ? 0 : 10 * (level[1] - '0') + 9;  // 9, 19, 29, 39
}

std::string encode_compile_options(const CompileOptions& o) {
  if (o.num_replicas < 1 || o.num_partitions < 1)
    fail(Code::kValue, cat("compile options: ", o.num_replicas, " replicas x ", o.num_partitions,
                           " partitions, expected at least one of each"));
  std::string s;
  if (o.tuple_parameters) put_int(s, 2, 1);
  put_bytes(s, 3, build_options(o));
  auto overrides = o.overrides;
  std::stable_sort(overrides.begin(), overrides.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [name, value] : overrides) {
    std::string entry;
    put_bytes(entry, 1, name);
    put_bytes(entry, 2, override_value(value));
    put_bytes(s, 7, entry);
  }
  return s;
}

}  // namespace tp::pjrt
