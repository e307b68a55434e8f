// A recorded call, back as a call: from an overload's name and a node's attributes (ir/attrs.h)
// to the stack of arguments that its kernel wants. Decoded once a call site. Pure; any thread.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ir/attrs.h"

namespace tp::torch_room {

struct CallSite {
  struct Argument {
    enum class From : uint8_t { kValue, kTensor, kScalar, kReal, kList, kOptList } from;
    c10::IValue value;              // kValue
    std::vector<int64_t> operands;  // else; -1 for an absent element of a list
  };
  // Of a factorisation that raises where its output `info` says so (host_check.cpp).
  struct Check {
    std::string name;
    size_t info;
    bool is_matrix;
  };
  c10::OperatorHandle op;
  std::vector<Argument> args;
  std::optional<Check> check;

  // `operand(i)` gives operand i as a CPU tensor, and `number(i)` its value where the kernel takes
  // a number of it.
  using Operand = std::function<at::Tensor(int64_t)>;
  using Number = std::function<at::Scalar(int64_t)>;
  std::vector<c10::IValue> stack(const Operand& operand, const Number& number) const;
  std::vector<c10::IValue> stack(const Operand& operand) const;
};

// Throws where this PyTorch has no such operator.
CallSite decode_call(std::string_view name, ir::AttrsView attrs);
// Arguments that the op's kernel writes though its schema does not say so (Row::writes), by place.
std::vector<size_t> written_arguments(std::string_view name, const c10::FunctionSchema& schema);
// Raises what the site's check says of the results.
void check_results(const CallSite& site, const std::vector<at::Tensor>& results);

// The Code of what a kernel raised.
Code code_of(const c10::Error& e);

}  // namespace tp::torch_room
