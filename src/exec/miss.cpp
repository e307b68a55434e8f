#include "exec/miss.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "base/lock_order.h"
#include "base/text.h"
#include "exec/cache_file.h"
#include "exec/cache_folder.h"

namespace tp::exec {
namespace {

constexpr size_t kFiles = 512, kHeadBytes = 16384;

RankedMutex<LockRank::kStored> g_mu;
using Headers = std::vector<CacheFile>;  // the newest first
std::shared_ptr<const Headers>& headers_slot() {
  static auto* h = new std::shared_ptr<const Headers>;
  return *h;
}

std::shared_ptr<const Headers> read_headers(const std::string& folder) {
  auto out = std::make_shared<Headers>();
  std::vector<FolderFile> files = list_folder(folder).programs;
  std::reverse(files.begin(), files.end());
  if (files.size() > kFiles) files.resize(kFiles);
  for (const FolderFile& f : files) {
    std::string head(kHeadBytes, '\0');
    std::ifstream file(cat(folder, "/", f.name), std::ios::binary);
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<size_t>(file.gcount()));
    try {
      out->push_back(decode_head(head));
    } catch (const Error&) {  // not for us to judge: DiskCache does, when it is asked for
    }
  }
  return out;
}

std::shared_ptr<const Headers> headers() {
  CachePlace place = cache_place();
  if (place.folder.empty() || !prepare_cache_folder(place).empty())
    return std::make_shared<Headers>();
  std::lock_guard lock(g_mu);
  if (!headers_slot()) headers_slot() = read_headers(place.folder);
  return headers_slot();
}

// A sketch of nothing but ingredients: differences() then speaks of these alone.
Sketch ingredients_only(const std::vector<std::pair<std::string, Hash128>>& ingredients,
                        Hash128 total,
                        const std::vector<std::pair<std::string, std::string>>& words) {
  Sketch s;
  s.key.total = total;
  for (size_t i = 0; i < s.key.digests.size() && i < ingredients.size(); ++i)
    s.key.digests[i] = ingredients[i].second;
  for (const auto& [name, text] : words) {
    if (name == ingredient_name(Ingredient::kEnvironment)) s.environment = text;
    if (name == ingredient_name(Ingredient::kTorchRevision)) s.torch = text;
    if (name == ingredient_name(Ingredient::kRevision)) s.ours = text;
  }
  return s;
}

}  // namespace

std::vector<Reason> why_missed(const StoredProgram& p) {
  auto stored = headers();
  for (const CacheFile& f : *stored) {
    if (f.structure != p.structure || f.key == p.key.total) continue;
    return differences(ingredients_only(f.ingredients, f.key, f.words),
                       ingredients_only(ingredients_of(p.key), p.key.total, p.words));
  }
  return {};
}

void forget_stored_headers() {
  std::lock_guard lock(g_mu);
  headers_slot() = nullptr;
}

}  // namespace tp::exec
