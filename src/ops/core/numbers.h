// Numbers that select: attributes like a slice's start or an eps. A program is compiled with them
// as constants; once a second graph differs from a known one in such numbers only, they become
// inputs of one general program (exec/numbers.h). Here a node's attributes are split into those
// numbers and what is left, the structure. Pure; any thread.
#pragma once
#include <string_view>
#include <vector>

#include "ops/core/row.h"

namespace tp::ops {

// Row::general of rows that take any number among their attributes as an input.
inline constexpr const char* kAllNumbers = "*";

// Appends what of the node's attributes is structure, as words, and its numbers. Two nodes of one
// op, equal operand types and equal structures have equally many numbers, and one lowering serves
// both given the numbers as inputs. The row has `general`.
void split_numbers(const ir::Node& n, const Row& row, std::vector<uint64_t>& structure,
                   std::vector<Number>& values);

// Where the numbers of attribute `name` begin among the node's, for rows without a rule of their
// own; -1 where it has none.
int number_place(const Row& row, ir::AttrsView attrs, std::string_view name);

// Which of the attributes' words are the node's numbers, in their order, for rows without a rule of
// their own.
std::vector<size_t> number_words(const Row& row, ir::AttrsView attrs);

// SplitRule for an `eps` that clamps unless it is absent or below 0: its sign is structure.
void split_eps(const Args& a, std::vector<uint64_t>& structure, std::vector<Number>& values);

}  // namespace tp::ops
