#include "hlo/lineage.h"

namespace tp::hlo {

uint64_t Lineage::number_of(int id) const {
  auto i = static_cast<size_t>(id);
  return i < entries_.size() && entries_[i].number ? entries_[i].number
                                                   : static_cast<uint64_t>(id) + 1;
}

void Lineage::add(int id, Hash128 statement, std::span<const int> operands) {
  auto i = static_cast<size_t>(id);
  if (entries_.size() <= i) entries_.resize(i + 1);
  for (int o : operands) statement = mix(statement, number_of(o));
  entries_[i] = {statement.lo, operands_.size(), operands_.size() + operands.size()};
  operands_.insert(operands_.end(), operands.begin(), operands.end());
  first_.emplace(statement.lo, id);
}

bool Lineage::made_from(int id, int source) const {
  uint64_t wanted = number_of(source);
  auto first = first_.find(wanted);
  int oldest = first == first_.end() ? source : first->second;
  std::vector<int> stack{id};
  std::vector<bool> seen(static_cast<size_t>(id) + 1);
  while (!stack.empty()) {
    int v = stack.back();
    stack.pop_back();
    if (v < oldest || seen[static_cast<size_t>(v)]) continue;  // values are made of older ones
    seen[static_cast<size_t>(v)] = true;
    if (number_of(v) == wanted) return true;
    if (static_cast<size_t>(v) >= entries_.size()) continue;
    const Entry& e = entries_[static_cast<size_t>(v)];
    stack.insert(stack.end(), operands_.begin() + static_cast<ptrdiff_t>(e.begin),
                 operands_.begin() + static_cast<ptrdiff_t>(e.end));
  }
  return false;
}

}  // namespace tp::hlo
