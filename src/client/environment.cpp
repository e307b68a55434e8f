#include "client/environment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/cache_place.h"
#include "base/flags.h"
#include "base/text.h"

namespace tp::client {
namespace {

std::string value_text(const OptionValue& v) {
  // The type is part of it: "1" the text is not 1 the number.
  return std::visit([&](const auto& x) { return cat(v.index(), ":", x); }, v);
}

void fold(Hash128& h, std::string_view what, std::string_view value) {
  h = mix(mix(h, hash_text(what)), hash_text(value));
}

void fold_options(Hash128& h, std::string_view what,
                  std::vector<std::pair<std::string, OptionValue>> options) {
  std::sort(options.begin(), options.end());
  for (const auto& [name, value] : options) fold(h, cat(what, ".", name), value_text(value));
}

// What tells one state of a file from another without reading it.
std::string file_stamp(const std::string& path) {
  std::error_code error;
  auto size = std::filesystem::file_size(path, error);
  auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
  return cat(path, " ", size, " ", time);
}

Hash128 hash_file(const std::string& path) {
  std::error_code error;
  auto size = std::filesystem::file_size(path, error);
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* bytes = fd < 0 || error || size == 0
                    ? MAP_FAILED
                    : mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
  if (fd >= 0) close(fd);
  if (bytes == MAP_FAILED) return {};
  Hash128 h = hash_bytes(bytes, size);
  munmap(bytes, size);
  return h;
}

// The digest of a plugin's bytes. Reading hundreds of megabytes at each start would take longer
// than loading a program, so the folder of stored programs remembers it by path, size and time.
// Where programs are not kept, nobody needs more than the stamp.
Hash128 plugin_digest(const std::string& path) {
  std::string stamp = file_stamp(path);
  CachePlace place = cache_place();
  if (place.folder.empty()) return hash_text(stamp);
  std::string name = cat("plugin-", hash_text(stamp).hex());
  if (auto known = read_cache_file(place.folder, name, Touch::kNo))
    if (Hash128 h = parse_hash(known->substr(0, 32)); h != Hash128{}) return h;
  Hash128 h = hash_file(path);
  if (!place.read_only && prepare_cache_folder(place.folder).empty())
    write_cache_file(place.folder, name, cat(h.hex(), "\n", stamp, "\n"));
  return h;
}

// Model and feature lines of the first processor; nothing where the system has no such file.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string all, line;
  while (std::getline(file, line) && !line.empty())
    for (std::string_view key : {"model name", "flags", "CPU part", "Features"})
      if (line.starts_with(key)) all += line + "\n";
  return all;
}

}  // namespace

Hash128 hash_environment(const pjrt::Client& client, const PluginSpec& spec) {
  const pjrt::Plugin& plugin = client.plugin();
  Hash128 h = hash_text("torch_pjrt environment 1");
  fold(h, "platform", client.platform_name());
  fold(h, "version", client.platform_version());
  fold(h, "plugin", plugin_digest(plugin.path()).hex());
  fold(h, "api", cat(plugin.api_major(), ".", plugin.api_minor()));
  for (const auto& [name, value] : plugin.attributes()) fold(h, name, value);
  fold_options(h, "create", spec.options);
  fold_options(h, "compile", spec.compile_options);
  if (spec.capabilities) fold(h, "capabilities", cat(spec.capabilities->bits()));
  for (const pjrt::Device& d : client.devices()) fold(h, "device", cat(d.id(), " ", d.kind()));
  fold(h, "processor", processor());
  fold(h, "flags", flags_in_key());
  return h;
}

}  // namespace tp::client
