#include "ir/attrs.h"

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/forks.h"
#include "base/text.h"

namespace tp::ir {
namespace {

struct Names {
  TableMutex mu;
  std::unordered_map<Symbol, std::string> by_id;
};
Names& names() {
  static Names* n = new Names;
  return *n;
}

std::string value_text(const Attr& a) {
  switch (a.kind) {
    case AttrKind::kNone:
      return "none";
    case AttrKind::kOperand:
      return cat("%", a.integer());
    case AttrKind::kInt:
      return cat(a.integer());
    case AttrKind::kFloat:
      return cat(a.real());
    case AttrKind::kBool:
      return cat(a.boolean());
    case AttrKind::kDType:
      return std::string(dtype_name(a.dtype()));
    case AttrKind::kText:
      return cat("\"", a.text(), "\"");
    case AttrKind::kFloats:
      return cat("[", join(a.floats(), ","), "]");
    case AttrKind::kOperands:
      return cat("%[", join(a.ints(), ","), "]");
    case AttrKind::kInts:
    case AttrKind::kBools:
      return cat("[", join(a.ints(), ","), "]");
  }
  return "?";
}

}  // namespace

Symbol symbol(std::string_view name) {
  auto id = static_cast<Symbol>(hash_text(name).lo);
  Names& n = names();
  std::lock_guard lock(n.mu);
  auto [it, fresh] = n.by_id.emplace(id, name);
  check(fresh || it->second == name, "two argument names may not share a 32-bit symbol");
  return id;
}

std::string_view symbol_name(Symbol s) {
  Names& n = names();
  std::lock_guard lock(n.mu);
  auto it = n.by_id.find(s);
  return it == n.by_id.end() ? std::string_view("?") : std::string_view(it->second);
}

void AttrsBuilder::floats(Symbol n, std::span<const double> v) {
  head(n, AttrKind::kFloats, v.size());
  words_.append({reinterpret_cast<const uint64_t*>(v.data()), v.size()});
}

void AttrsBuilder::text(Symbol n, std::string_view v) {
  head(n, AttrKind::kText, v.size());
  size_t at = words_.size();
  words_.resize(at + (v.size() + 7) / 8, 0);
  if (!v.empty()) std::memcpy(words_.data() + at, v.data(), v.size());
}

bool AttrsView::find(Symbol name, Attr* out) const {
  for (Attr a : *this)
    if (a.name == name) {
      *out = a;
      return true;
    }
  return false;
}

std::string AttrsView::text() const {
  std::string s;
  for (Attr a : *this) {
    if (!s.empty()) s += ", ";
    s += cat(symbol_name(a.name), "=", value_text(a));
  }
  return s;
}

}  // namespace tp::ir
