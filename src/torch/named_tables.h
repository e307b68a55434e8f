// Tables by name: what is known of an op by functions of PyTorch's, which the op's row (src/ops has
// no torch) cannot hold. A misspelt name in one would be an op that is treated like any other, so
// each name is checked (tests/python/test_op_tables.py). Any thread, once the table is registered.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tp::torch_room {

// What a table's names are of.
enum class NameOf : unsigned char {
  kOverloads,  // in the form that is called: "aten::add_.Tensor"
  kRows,       // "aten::add.Tensor"
  kHostOps,    // ops without a row: "aten::_linalg_svd"
  kArguments,  // numbers among the arguments of any row: "alpha"
};

struct NamedTable {
  std::string_view where;  // "typed.cpp"
  NameOf of;
  std::vector<std::string_view> names;
};
std::vector<NamedTable> named_tables();

// Those of the names that nothing is called.
std::vector<std::string> unknown_names(NameOf of, const std::vector<std::string>& names);

// Each from the file that has the table.
std::vector<std::string_view> typed_names();
std::vector<std::string_view> around_names();
std::vector<std::string_view> exception_names();
std::vector<std::string_view> checked_names();
std::vector<std::string_view> number_names();

}  // namespace tp::torch_room
