// Programs across processes: the policy over cache_folder.h. Whatever goes wrong here costs a
// compile, never a sync: nothing of it throws. Counters: PersistentCacheHit, PersistentCacheMiss,
// PersistentCacheCorrupt. Thread-safe; no lock is held while files are read or written.
#pragma once
#include <atomic>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cache_place.h"
#include "client/computation_client.h"
#include "exec/key.h"

namespace tp::exec {

// What is asked of the disk: a program by key, of exactly this structure.
struct StoredProgram {
  const Key& key;
  Hash128 structure;  // digest of ir::Graph::signature
  std::span<const ir::Type> outputs;
  int64_t nodes = 0;
  std::string where;
  std::vector<std::pair<std::string, std::string>> words;  // CacheFile::words
};

class DiskCache {
 public:
  // The program, loaded; null where there is none that can be trusted. A file that is broken, or
  // that the plugin refuses, is removed, and said once.
  client::ExecutablePtr load(client::ComputationClient& client, const StoredProgram& p);
  // Is there a file of that name? Nobody has looked into it.
  bool has(const client::ComputationClient& client, const Key& key, Hash128 structure);
  // Keeps a program that was compiled. After a failure to write nothing more is written, which is
  // said once.
  void store(client::ComputationClient& client, const StoredProgram& p,
             const client::Executable& executable, double compile_seconds);

 private:
  client::ExecutablePtr load_from(client::ComputationClient& client, const CachePlace& place,
                                  const StoredProgram& p);
  bool usable(const client::ComputationClient& client, const CachePlace& place);
  void discard(const std::string& folder, const std::string& name, bool read_only,
               std::string_view why);
  void give_up(const std::string& folder, std::string_view why);
  std::atomic<bool> writes_{true}, reported_corrupt_{false};
};

}  // namespace tp::exec
