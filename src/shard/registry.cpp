#include "shard/registry.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/text.h"

namespace tp::shard {
namespace {

struct Registry {
  std::mutex mu;
  std::map<std::string, Ref, std::less<>> by_text;
  std::vector<Mesh> meshes;
  std::vector<int> devices;  // of the first sharding over more than one
};
Registry& registry() {
  static auto* r = new Registry;  // outlives static destructors
  return *r;
}
std::atomic<bool> g_any{false}, g_several_sets{false};

std::vector<int> ascending(std::vector<int> v) {
  std::sort(v.begin(), v.end());
  return v;
}

}  // namespace

Ref enter(Ref s) {
  Registry& r = registry();
  std::lock_guard lock(r.mu);
  g_any.store(true, std::memory_order_relaxed);
  r.by_text.try_emplace(s->text, s);
  if (r.devices.empty() && s->devices.size() > 1) r.devices = s->devices;
  if (s->devices.size() > 1 && s->devices != r.devices) g_several_sets.store(true);
  bool named = !s->mesh.axes.empty() && !s->mesh.axes[0].name.starts_with('_');
  if (named && std::find(r.meshes.begin(), r.meshes.end(), s->mesh) == r.meshes.end())
    r.meshes.push_back(s->mesh);
  return s;
}

Ref find(std::string_view text) {
  Registry& r = registry();
  std::lock_guard lock(r.mu);
  auto it = r.by_text.find(text);
  return it == r.by_text.end() ? nullptr : it->second;
}

bool several_device_sets() { return g_several_sets.load(std::memory_order_relaxed); }

bool any() { return g_any.load(std::memory_order_relaxed); }

std::vector<Mesh> known_meshes(std::span<const int> devices) {
  Registry& r = registry();
  std::lock_guard lock(r.mu);
  std::vector<Mesh> out;
  for (const Mesh& m : r.meshes)
    if (std::ranges::equal(ascending(m.devices), devices)) out.push_back(m);
  return out;
}

std::string portable_text(const Sharding& s) {
  return cat(join(s.devices, ","), "|", join(s.tiles.counts, ","), "|", join(s.tiles.order, ","));
}

Ref parse_portable(std::string_view text) {
  std::vector<std::vector<int>> lists;
  for (size_t at = 0; at <= text.size();) {
    size_t end = std::min(text.find('|', at), text.size());
    auto& list = lists.emplace_back();
    while (at < end) {
      int v = 0;
      auto r = std::from_chars(text.data() + at, text.data() + end, v);
      if (r.ec != std::errc()) fail(Code::kRuntime, cat("no sharding: '", text, "'"));
      list.push_back(v);
      at = static_cast<size_t>(r.ptr - text.data()) + 1;
    }
    at = end + 1;
  }
  if (lists.size() != 3 || lists[0].empty() || lists[2].size() != lists[0].size())
    fail(Code::kRuntime, cat("no sharding: '", text, "'"));
  size_t tiles = 1;
  for (int c : lists[1]) tiles *= static_cast<size_t>(std::max(c, 1));
  Tiles t{{lists[1].begin(), lists[1].end()}, lists[2], lists[2].size() / tiles};
  return from_tiles(lists[0], std::move(t));
}

}  // namespace tp::shard
