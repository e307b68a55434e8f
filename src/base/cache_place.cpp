#include "base/cache_place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <vector>

#include "base/flags.h"
#include "base/forks.h"
#include "base/text.h"

namespace tp {
namespace {

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

std::string absolute(const std::string& path) {
  std::error_code error;
  auto p = std::filesystem::absolute(path, error).lexically_normal();
  return error ? path : p.string();
}

std::string default_folder() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg && *xdg == '/') return cat(xdg, "/torch_pjrt");  // relative ones are to be ignored
  const char* home = std::getenv("HOME");
  return home && *home == '/' ? cat(home, "/.cache/torch_pjrt") : std::string();
}

struct Chosen {
  TableMutex mu;
  std::optional<CachePlace> place;
};
Chosen& chosen() {
  static Chosen* c = new Chosen;
  return *c;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool read_all(int fd, size_t size, std::string& out) {
  out.resize(size);
  size_t at = 0;
  while (at < size) {
    ssize_t n = read(fd, out.data() + at, size - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) break;  // shorter by now: its checksum will say so
    at += static_cast<size_t>(n);
  }
  out.resize(at);
  return true;
}

// "name.<pid>-<n>.part": distinct among processes and threads; n starts with the time because a
// killed process's file may have had our pid.
std::string part_name(std::string_view name) {
  static std::atomic<int64_t> counter{std::chrono::system_clock::now().time_since_epoch().count()};
  return cat(name, ".", getpid(), "-", counter.fetch_add(1), kPartSuffix);
}

}  // namespace

CachePlace cache_place_from_flags() {
  CachePlace p;
  std::string asked = flag_text(Flag::kCache);
  if (asked == "0" || asked == "off") return p;
  if (asked.empty() || asked == "1" || asked == "on") asked = flag_text(Flag::kPersistentCachePath);
  p.folder = asked.empty() ? default_folder() : absolute(asked);
  p.shared = flag_bool(Flag::kCacheShared);
  p.read_only = p.shared || flag_bool(Flag::kCacheReadOnly);
  p.limit_bytes = flag_int(Flag::kCacheSize) << 20;
  return p;
}

CachePlace cache_place() {
  std::lock_guard lock(chosen().mu);
  if (!chosen().place) chosen().place = cache_place_from_flags();
  return *chosen().place;
}

void set_cache_place(CachePlace place) {
  if (!place.folder.empty()) place.folder = absolute(place.folder);
  std::lock_guard lock(chosen().mu);
  chosen().place = std::move(place);
}

namespace {

// Each folder on the way to a path, itself included: "/", "/tmp", "/tmp/a".
std::vector<std::string> steps_to(const std::string& folder) {
  std::vector<std::string> out;
  std::filesystem::path path;
  for (const auto& piece : std::filesystem::path(folder)) {
    path /= piece;
    if (!piece.empty()) out.push_back(path.string());
  }
  return out;
}

std::string make_folders(const std::string& folder) {
  for (const std::string& path : steps_to(folder))
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
      return cat(path, ": ", std::strerror(errno));
  return {};
}

// Why somebody else could put programs there; empty: nobody could. Of a link, not of what it leads
// to. In a sticky folder users may move only what is theirs.
enum class Sticky : bool { kNo, kYes };
std::string weakness(const std::string& path, const struct stat& s, Sticky allowed) {
  constexpr const char* kRun = ", and programs found there would be run";
  if (s.st_uid != geteuid() && s.st_uid != 0)
    return cat(path, " belongs to another user (", s.st_uid, ")", kRun);
  bool sticky = allowed == Sticky::kYes && (s.st_mode & S_ISVTX);
  if (S_ISLNK(s.st_mode) || sticky || !(s.st_mode & (S_IWGRP | S_IWOTH))) return {};
  return cat("other users may write to ", path, " (chmod go-w)", kRun);
}

std::string weakness_on_the_way(const std::string& folder) {
  std::vector<std::string> steps = steps_to(folder);
  for (const std::string& path : steps) {
    struct stat s{};
    if (lstat(path.c_str(), &s) != 0) return cat(path, ": ", std::strerror(errno));
    std::string why = weakness(path, s, path == steps.back() ? Sticky::kNo : Sticky::kYes);
    if (!why.empty()) return why;
  }
  return {};
}

}  // namespace

std::string prepare_cache_folder(const CachePlace& place) {
  std::string failed = place.read_only ? std::string() : make_folders(place.folder);
  if (!failed.empty()) return failed;
  struct stat s{};
  if (stat(place.folder.c_str(), &s) != 0) return std::strerror(errno);
  if (!S_ISDIR(s.st_mode)) return "it is not a folder";
  if (place.shared) return {};
  // As it was named, and where its links lead: whoever may move a link chooses the folder.
  std::error_code error;
  std::string real = std::filesystem::canonical(place.folder, error).string();
  if (error) return error.message();
  std::string why = weakness_on_the_way(place.folder);
  if (why.empty() && real != place.folder) why = weakness_on_the_way(real);
  return why;
}

std::optional<std::string> read_cache_file(const std::string& folder, std::string_view name,
                                           Touch touch, Trust trust) {
  // Whatever lies there under that name (a pipe, say) must not block.
  Fd fd(open(cat(folder, "/", name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat file{};
  if (!fd || fstat(fd.get(), &file) != 0 || !S_ISREG(file.st_mode)) return std::nullopt;
  if (trust == Trust::kOwner && !weakness({}, file, Sticky::kNo).empty()) return std::nullopt;
  std::string bytes;
  if (!read_all(fd.get(), static_cast<size_t>(file.st_size), bytes)) return std::nullopt;
  if (touch == Touch::kYes)
    futimens(fd.get(), nullptr);  // not ours to change: then it only looks older than it is
  return bytes;
}

std::string distrust(const std::string& folder, std::string_view name) {
  std::string path = cat(folder, "/", name);
  struct stat s{};
  return lstat(path.c_str(), &s) != 0 ? std::string() : weakness(path, s, Sticky::kNo);
}

std::string write_cache_file(const std::string& folder, std::string_view name,
                             std::string_view head, std::string_view body) {
  std::string part = cat(folder, "/", part_name(name)), target = cat(folder, "/", name);
  Fd fd(open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return std::strerror(errno);
  flock(fd.get(), LOCK_EX | LOCK_NB);  // says that its writer lives
  bool ok = write_all(fd.get(), head) && write_all(fd.get(), body) &&
            rename(part.c_str(), target.c_str()) == 0;
  if (ok) return {};
  int error = errno;
  unlink(part.c_str());
  return std::strerror(error);
}

bool abandoned_part(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return fd && flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace tp
