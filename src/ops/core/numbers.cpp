#include "ops/core/numbers.h"

#include <bit>

#include "base/hash.h"
#include "base/text.h"

namespace tp::ops {
namespace {

using ir::Attr;
using ir::AttrKind;

bool is_number(const Attr& a) {
  return a.kind == AttrKind::kInt || a.kind == AttrKind::kFloat || a.kind == AttrKind::kInts;
}

// Is the attribute one of `names`, words between spaces?
bool listed(std::string_view names, ir::Symbol symbol) {
  if (names == kAllNumbers) return true;
  return any_word(names, [&](std::string_view word) {
    return static_cast<ir::Symbol>(hash_text(word).lo) == symbol;
  });
}

uint64_t header(const Attr& a) {
  return uint64_t{a.name} << 32 | static_cast<uint64_t>(a.kind) << 24 | a.count;
}

}  // namespace

void split_numbers(const ir::Node& n, const Row& row, std::vector<uint64_t>& structure,
                   std::vector<Number>& values) {
  size_t before = values.size();
  for (Attr a : n.attrs()) {
    structure.push_back(header(a));
    bool number = is_number(a) && listed(row.general, a.name);
    for (size_t i = 0; i < a.payload_words(); ++i) {
      if (number)
        values.push_back({a.kind == AttrKind::kFloat, static_cast<int64_t>(a.payload[i])});
      else
        structure.push_back(a.payload[i]);
    }
  }
  if (!row.split) return;
  values.resize(before);
  std::vector<Type> types;
  for (const ir::Value& v : n.operands()) types.push_back(v.type());
  row.split(Args(n.attrs(), types, n.operands()), structure, values);
}

std::vector<size_t> number_words(const Row& row, ir::AttrsView attrs) {
  std::vector<size_t> words;
  for (Attr a : attrs) {
    if (!is_number(a) || !listed(row.general, a.name)) continue;
    auto first = static_cast<size_t>(a.payload - attrs.words().data());
    for (size_t i = 0; i < a.payload_words(); ++i) words.push_back(first + i);
  }
  return words;
}

int number_place(const Row& row, ir::AttrsView attrs, std::string_view name) {
  auto wanted = static_cast<ir::Symbol>(hash_text(name).lo);
  int place = 0;
  for (Attr a : attrs) {
    if (!is_number(a) || !listed(row.general, a.name)) continue;
    if (a.name == wanted) return place;
    place += static_cast<int>(a.payload_words());
  }
  return -1;
}

void split_eps(const Args& a, std::vector<uint64_t>& structure, std::vector<Number>& values) {
  double eps = a.f_or("eps", -1);
  structure.push_back(eps >= 0);
  if (eps >= 0) values.push_back({true, std::bit_cast<int64_t>(eps)});
}

}  // namespace tp::ops
