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

// Code that is made at run time, or a scope named after the step, brings new lines for ever. From
// half of what may be kept on, scopes that are new are left out; once it is full, new lines are
// unknown.
constexpr size_t kMost = 1 << 18;

}  // namespace

LocationId intern(const Location& l) {
  std::string key = cat(l.file, '\0', l.line, '\0', l.function, '\0', l.scope);
  Table& t = table();
  {
    std::lock_guard lock(t.mu);
    if (auto it = t.ids.find(key); it != t.ids.end()) return it->second;
    if (t.all.size() >= kMost) return 0;
    if (l.scope.empty() || t.all.size() < kMost / 2) {
      auto id = static_cast<LocationId>(t.all.size());
      t.all.push_back(l);
      t.ids.emplace(std::move(key), id);
      return id;
    }
  }
  return intern({l.file, l.line, l.function, ""});
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
