#include "ir/location.h"

#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/forks.h"
#include "base/text.h"

namespace tp::ir {
namespace {

struct Table {
  TableMutex mu;
  std::deque<Location> all{Location{}};  // a deque: references stay
  std::unordered_map<std::string, LocationId> ids;
};
Table& table() {
  static auto* t = new Table;
  return *t;
}

}  // namespace

LocationId intern(const Location& l) {
  std::string key = cat(l.file, '\0', l.line, '\0', l.function, '\0', l.scope);
  Table& t = table();
  std::lock_guard lock(t.mu);
  auto [it, fresh] = t.ids.emplace(std::move(key), static_cast<LocationId>(t.all.size()));
  if (fresh) t.all.push_back(l);
  return it->second;
}

const Location& location_of(LocationId id) {
  Table& t = table();
  std::lock_guard lock(t.mu);
  size_t i = id & ~kBackward;
  return t.all[i < t.all.size() ? i : 0];
}

std::string line_text(LocationId id) {
  const Location& l = location_of(id);
  if (l.file.empty()) return {};
  return cat(std::string_view(l.file).substr(l.file.rfind('/') + 1), ":", l.line,
             is_backward(id) ? " (backward)" : "");
}

std::string line_and_function(LocationId id) {
  std::string s = line_text(id);
  const Location& l = location_of(id);
  return l.function.empty() ? s : cat(s, " in ", l.function);
}

}  // namespace tp::ir
