// One op, from row name to numbers: builds a one-op graph as the recorder would, lowers it, and
// runs it on a real plugin. For tests only; single-threaded.
//
//   auto out = OpCall("aten::add.Tensor").tensor("self", f32({2}, {1, 2})).number("other", 3.0)
//                  .number("alpha", 1).types({"f32[2]"}).run();
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "client/registry.h"
#include "ir/graph.h"
#include "lower/lower.h"
#include "ops/core/row.h"

namespace tp::test {

// A dense row-major host tensor.
struct Tensor {
  ir::Type type;
  std::string bytes;
  std::vector<double> values() const;  // real parts, as double
};
ir::Type parse_type(std::string_view text);  // "f32[2,3]"; "-": the null type
Tensor make_tensor(ir::DType dtype, std::vector<int64_t> dims, const std::vector<double>& values);
inline Tensor f32(std::vector<int64_t> dims, const std::vector<double>& v) {
  return make_tensor(ir::DType::kF32, std::move(dims), v);
}
inline Tensor s64(std::vector<int64_t> dims, const std::vector<double>& v) {
  return make_tensor(ir::DType::kS64, std::move(dims), v);
}
inline Tensor pred(std::vector<int64_t> dims, const std::vector<double>& v) {
  return make_tensor(ir::DType::kPred, std::move(dims), v);
}

class OpCall {
 public:
  explicit OpCall(std::string row) : row_(std::move(row)) {}
  // Arguments in any order; every one under its schema name.
  OpCall& tensor(std::string_view name, Tensor t);
  OpCall& number(std::string_view name, const ir::Scalar& s, bool wrapped = true);
  OpCall& number(std::string_view name, double v) { return number(name, scalar(v)); }
  OpCall& number(std::string_view name, int v) { return number(name, scalar(int64_t{v})); }
  // A list of tensors; an element of null type is absent.
  OpCall& tensors(std::string_view name, std::vector<Tensor> list);
  OpCall& none(std::string_view name);
  OpCall& integer(std::string_view name, int64_t v);
  OpCall& real(std::string_view name, double v);
  OpCall& boolean(std::string_view name, bool v);
  OpCall& ints(std::string_view name, std::vector<int64_t> v);
  OpCall& bools(std::string_view name, std::vector<int64_t> v);
  OpCall& floats(std::string_view name, std::vector<double> v);
  OpCall& dtype(std::string_view name, ir::DType t);
  OpCall& text(std::string_view name, std::string_view v);
  // The result types, as recorded; not needed where the row has its own type rule.
  OpCall& types(const std::vector<std::string>& texts);
  OpCall& types(std::vector<ir::Type> t);

  bool has_rule() const;
  std::vector<ir::Type> inferred() const;  // by the row's own rule
  lower::Module lower() const;
  std::vector<Tensor> run() const;  // outputs of null type are left out

  static ir::Scalar scalar(double v);
  static ir::Scalar scalar(int64_t v);
  static ir::Scalar scalar(bool v);

 private:
  const ops::Row& row() const;
  std::vector<ir::Type> operand_types() const;
  ir::Graph graph() const;
  int64_t operand(Tensor t);

  std::string row_;
  ir::AttrsBuilder attrs_;
  std::vector<ir::Value> operands_;
  std::vector<Tensor> inputs_;  // of the buffer leaves, in operand order
  std::vector<ir::Type> types_;
};

// Runs a module: arguments in parameter order, results of the given types.
std::vector<Tensor> run_module(const std::string& text, const std::vector<Tensor>& in,
                               const std::vector<ir::Type>& out);
// A CPU plugin, and the options it is tried with: TORCH_PJRT_TEST_PLUGIN, else the build Python's
// default.
client::PluginSpec tried_plugin();
// From now on cpu_client() is of this plugin. Programs of the client before it must be gone.
void use_plugin(const client::PluginSpec& spec);
client::ComputationClient& cpu_client();

}  // namespace tp::test
