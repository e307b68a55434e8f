// Where things are kept across processes: one folder a process, from the flags or from
// set_cache_place(). Also the few file helpers that its users share. Thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tp {

struct CachePlace {
  std::string folder;  // absolute; empty: nothing is kept
  bool read_only = false;
  int64_t limit_bytes = 0;  // all programs together
  bool shared = false;      // TORCH_PJRT_CACHE_SHARED: trusted whoever owns it; then read_only too
};

// TORCH_PJRT_CACHE, else XLA_PERSISTENT_CACHE_PATH, else torch_pjrt in the user's cache folder.
CachePlace cache_place();
void set_cache_place(CachePlace place);
// What the flags say, whatever set_cache_place() said.
CachePlace cache_place_from_flags();

// Makes the folder and its parents, private to the user, unless the place is read-only. Gives the
// reason where that fails, or where what is there must not be trusted, since it is run as machine
// code: every folder on the way (links followed) belongs to this user or to root and nobody else
// may write to it; parents that others write to have the sticky bit. Empty for a shared place that
// is there.
std::string prepare_cache_folder(const CachePlace& place);

// The whole file, where it is readable, belongs to this user or to root and nobody else may write
// to it; in a shared place (Trust::kAnyone), whoever owns it. The folder is the caller's to have
// prepared. Touch::kYes counts as a use: its time of modification becomes now, where that is
// allowed.
enum class Touch : unsigned char { kNo, kYes };
enum class Trust : unsigned char { kOwner, kAnyone };
std::optional<std::string> read_cache_file(const std::string& folder, std::string_view name,
                                           Touch touch, Trust trust = Trust::kOwner);
// Why a file that is there is not read for its owner or its mode; empty where it may be, or is not
// there.
std::string distrust(const std::string& folder, std::string_view name);
inline Trust trust_of(const CachePlace& p) { return p.shared ? Trust::kAnyone : Trust::kOwner; }
// Readers see the old file or all of the new one, also where this process is killed. Mode 0600.
// Gives errno's words where it fails; the folder is then as before.
std::string write_cache_file(const std::string& folder, std::string_view name,
                             std::string_view head, std::string_view body = {});

// Names that write_cache_file() uses while it writes end in this. A file that no live process has
// locked is what a killed one left.
inline constexpr std::string_view kPartSuffix = ".part";
bool abandoned_part(const std::string& path);

}  // namespace tp
