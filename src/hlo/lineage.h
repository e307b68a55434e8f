// Which values of a program are made from which. Belongs to one Builder and its thread.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"

namespace tp::hlo {

class Lineage {
 public:
  // Value `id` is what a statement (its hash) makes of `operands`. Those never added are inputs.
  void add(int id, Hash128 statement, std::span<const int> operands);

  // Is `source`, or what the plugin will find to be the same value, among those `id` is made from?
  bool made_from(int id, int source) const;

 private:
  struct Entry {
    uint64_t number = 0;  // of the value: equal statements of equal operands have equal ones
    size_t begin = 0, end = 0;
  };
  uint64_t number_of(int id) const;

  std::vector<Entry> entries_;
  std::vector<int> operands_;
  std::unordered_map<uint64_t, int> first_;  // number to the first value that has it
};

}  // namespace tp::hlo
