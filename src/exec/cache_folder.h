// The folder of stored programs: what lies in it, and what may go. Other processes read and write
// it at the same time: a file that is gone by the time it is wanted is no error. Only files with
// the names that we give are looked at. Any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_place.h"
#include "base/hash.h"

namespace tp::exec {

struct FolderFile {
  std::string name;
  int64_t bytes = 0;
  int64_t used_ns = 0;  // when it was last used, ns since 1970
};

struct FolderList {
  std::vector<FolderFile> programs;  // the longest unused first
  std::vector<FolderFile> parts;     // being written, or left by a process that was killed
  std::vector<FolderFile> others;    // hashes of plugin files
  int64_t program_bytes() const;
};

// By key and structure (CacheFile): graphs whose keys collide have files of their own.
std::string program_file_name(Hash128 key, Hash128 structure = {});
FolderList list_folder(const std::string& folder);

struct Removed {
  int64_t files = 0, bytes = 0;
};
// Removes the programs unused for longest until the rest has at most `limit_bytes`, and what killed
// processes left longer than `part_age_s` ago.
Removed evict(const std::string& folder, int64_t limit_bytes, int64_t part_age_s);
// Removes everything of ours that no live process is writing.
Removed clear_folder(const std::string& folder);

struct Complaint {
  std::string name, what;
};
// Reads every program and checks its owner and mode (Trust::kOwner), its checksum and that its name
// is its key's.
std::vector<Complaint> verify_folder(const std::string& folder, Trust trust = Trust::kOwner);

}  // namespace tp::exec
