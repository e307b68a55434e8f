#include "ir/location.h"

#include <deque>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/forks.h"
#include "base/text.h"
#include "ir/callers.h"

namespace tp::ir {
namespace {

struct Table {
  TableMutex mu;
  std::deque<Location> all{Location{}};  // a deque: references stay
  std::unordered_map<std::string, LocationId> ids;
  std::unordered_map<LocationId, LocationId> callers;
  std::unordered_map<std::string, std::string> file_of;  // by name without folders: the first such
  std::unordered_set<std::string> shared;                // names of several files
};
Table& table() {
  static auto* t = new Table;
  return *t;
}

// Code that is made at run time, or a scope named after the step, brings new lines for ever. From
// half of what may be kept on, scopes that are new are left out; once it is full, new lines are
// unknown.
constexpr size_t kMost = 1 << 18;
std::string name_of(const std::string& file) { return file.substr(file.rfind('/') + 1); }

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
      auto [named, first] = t.file_of.emplace(name_of(l.file), l.file);
      if (!first && named->second != l.file) t.shared.insert(named->first);
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
  std::string name = name_of(l.file);
  {
    std::lock_guard lock(table().mu);
    if (table().shared.contains(name)) name = l.file;
  }
  return cat(name, ":", l.line, is_backward(id) ? " (backward)" : "");
}

std::string line_and_function(LocationId id) {
  std::string s = line_text(id);
  const Location& l = location_of(id);
  return l.function.empty() ? s : cat(s, " in ", l.function);
}

void set_caller(LocationId of, LocationId caller) {
  std::lock_guard lock(table().mu);
  table().callers.emplace(of & ~kBackward, caller);
}

LocationId caller_of(LocationId id) {
  Table& t = table();
  std::lock_guard lock(t.mu);
  auto it = t.callers.find(id & ~kBackward);
  return it == t.callers.end() ? 0 : it->second;
}

std::string caller_text(LocationId id) {
  LocationId caller = caller_of(id);
  return caller ? cat(", first reached from ", line_text(caller)) : "";
}
std::string line_and_caller(LocationId id) { return cat(line_text(id), caller_text(id)); }

std::string site_text(const Site& l) {
  std::string s = line_and_function(l.at);
  return l.own ? cat(s, ", called from ", line_and_function(l.own)) : s;
}

}  // namespace tp::ir
