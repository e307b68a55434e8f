#include "exec/disk_cache.h"

#include <unistd.h>

#include <chrono>

#include "base/cache_place.h"
#include "base/error.h"
#include "base/text.h"
#include "exec/cache_file.h"
#include "exec/cache_folder.h"
#include "probe/probe.h"

namespace tp::exec {
namespace {

constexpr int64_t kPartAgeSeconds = 60;  // a younger one may be between open() and its lock

std::string outputs_text(std::span<const ir::Type> types) {
  std::vector<std::string> texts;
  for (ir::Type t : types) texts.push_back(t.text());
  return join(texts, " ");
}

}  // namespace

bool DiskCache::usable(const client::ComputationClient& client, const CachePlace& place) {
  if (place.folder.empty() || !client.changed_variables().empty()) return false;
  if (place.read_only && access(place.folder.c_str(), F_OK) != 0) return false;
  std::string why = prepare_cache_folder(place);
  if (!why.empty()) give_up(place.folder, why);
  return why.empty();
}

void DiskCache::give_up(const std::string& folder, std::string_view why) {
  if (!writes_.exchange(false)) return;
  probe::say(0, cat("compiled programs cannot be kept in ", folder, ": ", why,
                    "; going on without. Set TORCH_PJRT_CACHE to another folder, or to off"));
}

void DiskCache::discard(const std::string& folder, const std::string& name, bool read_only,
                        std::string_view why) {
  static probe::Counter& corrupt = probe::counter("PersistentCacheCorrupt");
  corrupt.add();
  if (!read_only) unlink(cat(folder, "/", name).c_str());
  probe::say(
      reported_corrupt_.exchange(true) ? 1 : 0,
      cat("a stored program is not usable and is compiled again (", why, "): ", folder, "/", name));
}

client::ExecutablePtr DiskCache::load_from(client::ComputationClient& client,
                                           const CachePlace& place, const StoredProgram& p) {
  const std::string &folder = place.folder, name = program_file_name(p.key.total, p.structure);
  bool read_only = place.read_only;
  auto bytes = read_cache_file(folder, name, read_only ? Touch::kNo : Touch::kYes, trust_of(place));
  if (!bytes) {
    std::string why = place.shared ? std::string() : distrust(folder, name);
    if (!why.empty()) probe::say(reported_corrupt_.exchange(true) ? 1 : 0, cat("not used: ", why));
    return nullptr;
  }
  try {
    CacheFile f = decode(*bytes);
    std::string other = difference(f, p.key, p.structure, outputs_text(p.outputs));
    if (!other.empty())
      fail(Code::kRuntime, cat("stored program: it was made for another ", other));
    return client.deserialize(f.program, p.outputs);
  } catch (const Error& e) {
    discard(folder, name, read_only, e.message());
    return nullptr;
  }
}

client::ExecutablePtr DiskCache::load(client::ComputationClient& client, const StoredProgram& p) {
  static probe::Counter& hits = probe::counter("PersistentCacheHit");
  static probe::Counter& misses = probe::counter("PersistentCacheMiss");
  CachePlace place = cache_place();
  if (!usable(client, place)) return nullptr;
  client::ExecutablePtr e = load_from(client, place, p);
  (e ? hits : misses).add();
  return e;
}

bool DiskCache::has(const client::ComputationClient& client, const Key& key, Hash128 structure) {
  CachePlace place = cache_place();
  if (!usable(client, place)) return false;
  return access(cat(place.folder, "/", program_file_name(key.total, structure)).c_str(), R_OK) == 0;
}

void DiskCache::store(client::ComputationClient& client, const StoredProgram& p,
                      const client::Executable& executable, double compile_seconds) {
  CachePlace place = cache_place();
  if (place.read_only || !writes_ || !usable(client, place)) return;
  CacheFile f{.key = p.key.total,
              .ingredients = ingredients_of(p.key),
              .words = p.words,
              .structure = p.structure,
              .outputs = outputs_text(p.outputs),
              .nodes = p.nodes,
              .compile_ms = static_cast<int64_t>(compile_seconds * 1e3),
              .where = p.where,
              .program = {}};
  std::string program;
  try {
    program = client.serialize(executable);
  } catch (const Error& e) {  // this plugin, or this program, cannot be stored
    probe::say(1, cat("a program is not stored: ", e.message()));
    return;
  }
  if (static_cast<int64_t>(program.size()) > place.limit_bytes) return;
  std::string why = write_cache_file(place.folder, program_file_name(p.key.total, p.structure),
                                     encode_head(f, program), program);
  if (!why.empty()) return give_up(place.folder, why);
  evict(place.folder, place.limit_bytes, kPartAgeSeconds);
}

}  // namespace tp::exec
