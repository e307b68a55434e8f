#include "base/mappings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

namespace tp {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

File open_text(const char* path) { return {std::fopen(path, "re"), &std::fclose}; }

}  // namespace

Mappings count_mappings() {
  Mappings m;
  File limit = open_text("/proc/sys/vm/max_map_count"), maps = open_text("/proc/self/maps");
  if (!limit || !maps || std::fscanf(limit.get(), "%zu", &m.limit) != 1) return {};
  std::array<char, 1 << 16> part;
  while (size_t n = std::fread(part.data(), 1, part.size(), maps.get()))
    m.used += static_cast<size_t>(std::count(part.begin(), part.begin() + n, '\n'));
  return m;
}

}  // namespace tp
