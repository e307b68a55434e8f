#include "client/environment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
  struct stat s{};
  if (stat(path.c_str(), &s) != 0) return path;
  auto time = [](const timespec& t) { return cat(t.tv_sec, ".", t.tv_nsec); };
  // The time of change, too: copies may keep the other.
  return cat(path, " ", s.st_size, " ", time(s.st_mtim), " ", time(s.st_ctim), " ", s.st_ino);
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
  bool sound = prepare_cache_folder(place).empty();
  if (auto known = sound ? read_cache_file(place.folder, name, Touch::kNo) : std::nullopt)
    if (Hash128 h = parse_hash(known->substr(0, 32)); h != Hash128{}) return h;
  Hash128 h = hash_file(path);
  if (!place.read_only && sound)
    write_cache_file(place.folder, name, cat(h.hex(), "\n", stamp, "\n"));
  return h;
}

// Those that plugins of XLA are known to read: for plugins that name none.
constexpr std::string_view kUsual[] = {"XLA_FLAGS", "TF_XLA_FLAGS", "LIBTPU_INIT_ARGS", "NEURON_*"};

bool names(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool is_named(const PluginSpec& spec, std::string_view name) {
  auto fits = [&](std::string_view pattern) { return names(pattern, name); };
  if (spec.variables.empty()) return std::any_of(std::begin(kUsual), std::end(kUsual), fits);
  return std::any_of(spec.variables.begin(), spec.variables.end(), fits);
}

// XLA takes a value that is no flag for the name of a file of flags.
std::string with_file(std::string_view name, std::string_view value) {
  size_t first = value.find_first_not_of(" \t\n");
  bool file = name.ends_with("FLAGS") && first != value.npos && value[first] != '-';
  return file ? cat(value, " ", hash_file(std::string(value)).hex()) : std::string(value);
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

Variables plugin_variables(const PluginSpec& spec) {
  Variables out;
  for (char** e = environ; e && *e; ++e) {
    std::string_view entry(*e);
    size_t equal = std::min(entry.find('='), entry.size());
    std::string_view name = entry.substr(0, equal);
    if (!is_named(spec, name)) continue;
    out.emplace_back(name, with_file(name, entry.substr(std::min(equal + 1, entry.size()))));
  }
  std::sort(out.begin(), out.end());
  return out;
}

Hash128 hash_environment(const pjrt::Client& client, const PluginSpec& spec,
                         const Variables& variables, const Capabilities& capabilities) {
  const pjrt::Plugin& plugin = client.plugin();
  Hash128 h = hash_text("torch_pjrt environment 3");
  fold(h, "platform", client.platform_name());
  fold(h, "version", client.platform_version());
  fold(h, "plugin", plugin_digest(plugin.path()).hex());
  fold(h, "api", cat(plugin.api_major(), ".", plugin.api_minor()));
  for (const auto& [name, value] : plugin.attributes()) fold(h, name, value);
  fold_options(h, "create", spec.options);
  fold_options(h, "compile", spec.compile_options);
  fold(h, "capabilities", cat(capabilities.bits()));
  for (const pjrt::Device& d : client.devices()) fold(h, "device", cat(d.id(), " ", d.kind()));
  fold(h, "processor", processor());
  fold(h, "flags", flags_in_key());
  for (const auto& [name, text] : spec.facts) fold(h, cat("fact.", name), text);
  for (const auto& [name, value] : variables) fold(h, cat("variable.", name), value);
  return h;
}

}  // namespace tp::client
