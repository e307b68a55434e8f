#include "client/environment.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

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

void fold_file(Hash128& h, const std::string& path) {
  std::error_code error;
  auto size = std::filesystem::file_size(path, error);
  auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
  fold(h, "plugin", cat(path, " ", size, " ", time));
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
  fold_file(h, plugin.path());
  fold(h, "api", cat(plugin.api_major(), ".", plugin.api_minor()));
  for (const auto& [name, value] : plugin.attributes()) fold(h, name, value);
  fold_options(h, "create", spec.options);
  fold_options(h, "compile", spec.compile_options);
  for (const pjrt::Device& d : client.devices()) fold(h, "device", cat(d.id(), " ", d.kind()));
  fold(h, "processor", processor());
  fold(h, "flags", flags_in_key());
  return h;
}

}  // namespace tp::client
