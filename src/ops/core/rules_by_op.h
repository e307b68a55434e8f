// Tables of rules that name in `ops` the rows they are for ("sum prod.dim_int", without "aten::"):
// the rule of a row. Constant; any thread.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/text.h"

namespace tp::ops {

template <class Rule>
class RulesByOp {
 public:
  explicit RulesByOp(std::span<const Rule> rules) {
    for (const Rule& r : rules)
      any_word(r.ops, [&](std::string_view op) {
        by_row_.emplace(cat("aten::", op), &r);
        return false;
      });
  }
  // Null where no rule names the row.
  const Rule* find(std::string_view row) const {
    auto it = by_row_.find(std::string(row));
    return it == by_row_.end() ? nullptr : it->second;
  }

 private:
  std::unordered_map<std::string, const Rule*> by_row_;
};

}  // namespace tp::ops
