#include "exec/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <tuple>

#include "base/cache_place.h"
#include "base/error.h"
#include "base/text.h"
#include "exec/cache_file.h"

namespace tp::exec {
namespace {

constexpr std::string_view kProgramSuffix = ".program", kPluginPrefix = "plugin-";
constexpr size_t kHexDigits = 32;

bool is_hex(std::string_view s) {
  return s.size() >= kHexDigits &&
         s.substr(0, kHexDigits).find_first_not_of("0123456789abcdef") == s.npos;
}

// Which list a file of this name belongs to; null for a stranger's.
std::vector<FolderFile>* list_of(FolderList& l, std::string_view name) {
  bool program = is_hex(name);
  bool plugin = name.starts_with(kPluginPrefix) && is_hex(name.substr(kPluginPrefix.size()));
  if (!program && !plugin) return nullptr;
  if (name.ends_with(kPartSuffix)) return &l.parts;
  if (program && name.substr(kHexDigits) == kProgramSuffix) return &l.programs;
  return plugin && name.size() == kPluginPrefix.size() + kHexDigits ? &l.others : nullptr;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void remove(const std::string& folder, const FolderFile& f, Removed& r) {
  if (unlink(cat(folder, "/", f.name).c_str()) != 0) return;
  ++r.files;
  r.bytes += f.bytes;
}

void remove_parts(const std::string& folder, const FolderList& l, int64_t age_s, Removed& r) {
  int64_t before = now_ns() - age_s * 1'000'000'000;
  for (const FolderFile& f : l.parts)
    if (f.used_ns <= before && abandoned_part(cat(folder, "/", f.name))) remove(folder, f, r);
}

}  // namespace

int64_t FolderList::program_bytes() const {
  int64_t sum = 0;
  for (const FolderFile& f : programs) sum += f.bytes;
  return sum;
}

std::string program_file_name(Hash128 key, Hash128 structure) {
  return cat(mix(key, structure).hex(), kProgramSuffix);
}

FolderList list_folder(const std::string& folder) {
  FolderList l;
  DIR* dir = opendir(folder.c_str());
  if (!dir) return l;
  while (const dirent* e = readdir(dir)) {
    auto* list = list_of(l, e->d_name);
    struct stat s{};
    if (!list || fstatat(dirfd(dir), e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(s.st_mode))
      continue;
    list->push_back({e->d_name, s.st_size, s.st_mtim.tv_sec * 1'000'000'000 + s.st_mtim.tv_nsec});
  }
  closedir(dir);
  auto older = [](const FolderFile& a, const FolderFile& b) {
    return std::tie(a.used_ns, a.name) < std::tie(b.used_ns, b.name);
  };
  std::sort(l.programs.begin(), l.programs.end(), older);
  return l;
}

Removed evict(const std::string& folder, int64_t limit_bytes, int64_t part_age_s) {
  FolderList l = list_folder(folder);
  Removed r;
  remove_parts(folder, l, part_age_s, r);
  int64_t left = l.program_bytes();
  for (const FolderFile& f : l.programs) {
    if (left <= limit_bytes) break;
    remove(folder, f, r);
    left -= f.bytes;  // also where another process was faster
  }
  return r;
}

Removed clear_folder(const std::string& folder) {
  FolderList l = list_folder(folder);
  Removed r;
  for (const FolderFile& f : l.programs) remove(folder, f, r);
  for (const FolderFile& f : l.others) remove(folder, f, r);
  remove_parts(folder, l, 0, r);
  return r;
}

std::vector<Complaint> verify_folder(const std::string& folder, Trust trust) {
  std::vector<Complaint> out;
  FolderList l = list_folder(folder);
  for (const FolderFile& f : l.programs) {
    auto bytes = read_cache_file(folder, f.name, Touch::kNo, trust);
    if (!bytes) {
      if (std::string why = distrust(folder, f.name); !why.empty()) out.push_back({f.name, why});
      continue;
    }
    try {
      CacheFile head = decode(*bytes);
      if (program_file_name(head.key, head.structure) != f.name)
        out.push_back({f.name, "its name is not that of its key"});
    } catch (const Error& e) {
      out.push_back({f.name, e.message()});
    }
  }
  for (const FolderFile& f : l.parts)
    if (abandoned_part(cat(folder, "/", f.name)))
      out.push_back({f.name, "left by a process that was killed while it wrote"});
  return out;
}

}  // namespace tp::exec
