// Operator schemas as the recorder reads them: arguments classified once, and which overloads are
// forms (in-place, out=) of one functional overload. Pure functions of schemas; any thread.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <string_view>
#include <vector>

#include "torch/recorder.h"

namespace tp::torch_room {

std::vector<std::string> words(std::string_view s);  // split at spaces

// All overloads of "aten::add", as PyTorch had them when this was first asked.
const std::vector<c10::OperatorName>& overloads_of(const std::string& base);

// "aten::add.Tensor" and back.
std::string display(const c10::OperatorName& n);
c10::OperatorName parse_name(std::string_view s);

ArgInfo arg_info(const c10::Argument& a, const ops::Row& row);
// A row's op with its arguments classified; `writes` and `meta` are left empty.
OpInfo op_info(const ops::Row& row, const c10::FunctionSchema& schema);

// Is `s` the in-place form of the functional overload `f`?
bool is_inplace_of(const c10::FunctionSchema& f, const c10::FunctionSchema& s);
// Where `s` is its out= form: the number of leading arguments that it shares with the functional.
std::optional<size_t> is_out_of(const c10::FunctionSchema& f, const c10::FunctionSchema& s);

}  // namespace tp::torch_room
