// Recording: a call of an operator becomes one node. One class collects a call's arguments, from a
// boxed stack or from typed arguments, looks its result types up (memoised by op, operand types and
// strides, attrs), makes the node, and gives results in the call's form: new tensors, in-place, or
// out=.
//
// Threads: any. The type cache is per thread (backward ops come on autograd's threads), so it has
// no lock, and PyTorch's shape functions are asked with no lock of ours held.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/node.h"
#include "ops/core/row.h"
#include "torch/kernels.h"
#include "torch/tensor.h"

namespace tp::torch_room {

using Stack = std::vector<c10::IValue>;
// PyTorch's own structured meta function of an overload (or ours, meta_own.cpp), on a stack of Meta
// tensors. Null: the row
// has a rule.
using MetaFunction = void (*)(Stack*);
// What PyTorch's structured kernel of an overload makes of out=: it wants the result's own dtype,
// or casts into it as TensorIterators do. kNo: the overload has no structured kernel.
enum class Structured : uint8_t { kNo, kExact, kIterates };
// The generated table (tools/gen_meta.py), in parts that compile side by side.
struct MetaRow {
  const char* overload;
  MetaFunction function;
  Structured kernel;
};
const MetaRow* meta_row(std::string_view overload);
std::span<const MetaRow> meta_rows_0();
std::span<const MetaRow> meta_rows_1();
std::span<const MetaRow> meta_rows_2();
// Written by hand, for ops whose shape functions PyTorch has elsewhere.
std::span<const MetaRow> meta_rows_own();

enum class ArgKind : uint8_t {
  kTensor,
  kTensorList,
  kOptTensorList,
  kScalar,
  kInt,
  kFloat,
  kBool,
  kInts,
  kBools,
  kFloats,
  kDType,
  kText,
  kGenerator,
  kSkip
};

struct ArgInfo {
  ir::Symbol symbol;
  ArgKind kind;
  bool as_attr = false;         // a Scalar that the row bakes,
  bool unless_complex = false;  // but takes a complex one as an operand
  bool as_number = false;       // a float that the row wants as a run-time number
  bool must_fit = false;        // a Scalar that eager's kernel converts to the result's dtype
  bool unit_default = false;  // an integer default of 1 (alpha, beta, value): 1 is recorded as None
  std::string name;
};

// A row as PyTorch knows it: its schema's arguments, classified once at load.
struct OpInfo {
  const ops::Row* row;
  const ir::OpKind* kind;
  std::vector<ArgInfo> args;
  size_t num_returns;
  bool returns_list = false;
  bool returns_lists = false;  // several results, lists among them
  std::vector<size_t> writes;  // positions of the arguments of Row::writes
  MetaFunction meta = nullptr;
  bool exact_out = false;  // does eager's out= form want the result's own dtype?
  bool iterates = false;   // ops::Iterates, decided
  std::string base_name;   // "aten::add.Tensor", for messages
  // A host op without a meta function: its CPU kernel tells the types (host_op.h).
  std::optional<c10::OperatorHandle> cpu = {};
};

enum class FormKind : uint8_t { kFunctional, kInplace, kOut };
struct Form {
  const OpInfo* op;
  FormKind kind;
  // How many of the row's arguments this form's schema has in front; the others (dtype, layout,
  // device, pin_memory of a factory) follow from out=.
  size_t leading;
};

// Result types of a call, and eager's strides (empty: row-major).
struct Result {
  ir::Type type;
  std::unique_ptr<Dims> strides;
};
struct Inferred {
  std::vector<Result> results;
  std::vector<ir::Type> types;  // of all outputs, for the node
};

class Call {
 public:
  explicit Call(const OpInfo& op) : op_(op), key_{op.kind->hash} {}
  const OpInfo& op() const { return op_; }

  // One for each schema argument, in order.
  void tensor(const ArgInfo& a, const at::Tensor& t);
  void tensor_list(const ArgInfo& a, c10::ArrayRef<at::Tensor> list);
  void scalar(const ArgInfo& a, const at::Scalar& s);
  void integer(const ArgInfo& a, int64_t v) { attrs_.integer(a.symbol, v); }
  void real(const ArgInfo& a, double v);
  void boolean(const ArgInfo& a, bool v) { attrs_.boolean(a.symbol, v); }
  void ints(const ArgInfo& a, at::IntArrayRef v) { attrs_.ints(a.symbol, span_of(v)); }
  void dtype(const ArgInfo& a, at::ScalarType t) { attrs_.dtype(a.symbol, to_dtype(t)); }
  void text(const ArgInfo& a, std::string_view v) { attrs_.text(a.symbol, v); }
  void bools(const ArgInfo& a, std::span<const int64_t> v) { attrs_.bools(a.symbol, v); }
  void none(const ArgInfo& a) { attrs_.none(a.symbol); }
  // Any argument, from its boxed form.
  void value(const ArgInfo& a, const c10::IValue& v);
  // The seed and offset of a random row, from the generator argument or the default one.
  void random(const std::optional<at::Generator>& g);

  // The out= tensors of the call, whose dtypes eager looks at before its kernels look at operands'.
  void outs(c10::ArrayRef<c10::IValue> outs) { outs_ = outs; }
  // The tensor that an in-place call writes: the same.
  void writes(const at::Tensor& t) { first_written_ = &t; }

  // Result types; on a miss `boxed(stack)` has to push the call's arguments as IValues.
  template <class Boxed>
  const Inferred& infer(FormKind form, Boxed&& boxed) {
    finish_key(form);
    const Inferred* found = lookup();
    if (!found) {
      Stack stack;
      boxed(stack);
      found = &miss(form, stack);
    }
    if (!large_.empty() || by_zero_) [[unlikely]]
      check_numbers(*found);
    return *found;
  }
  ir::NodePtr node(const Inferred& types);
  // Of the operands, else the one asked for, else the current one.
  c10::Device device() const {
    return device_.index() < 0
               ? c10::Device(c10::kXLA, static_cast<c10::DeviceIndex>(current_device()))
               : device_;
  }
  std::string describe() const;  // "aten::add.Tensor(f32[2,3], f32[4])"

 private:
  int64_t operand(ir::Value v, const Impl* t);
  int64_t number(const at::Scalar& s, bool wrapped);
  void note_divisor(const at::Scalar& s);
  int64_t tensor_operand(const at::Tensor& t, bool may_upload);
  void finish_key(FormKind form);
  const Inferred* lookup() const;
  const Inferred& miss(FormKind form, Stack& stack);
  void with_args(const std::function<void(const ops::Args&)>& f) const;
  std::unique_ptr<Dims> strides_of(ir::Type result, const Stack& args) const;
  Inferred by_rule(const Stack& args) const;
  Inferred by_meta(Stack& stack) const;
  Inferred by_dry_run(Stack& stack) const;
  void check_inplace(const Inferred& i) const;
  void check_outs(const Inferred& i) const;
  void check_numbers(const Inferred& i) const;

  const OpInfo& op_;
  Hash128 key_;
  ir::AttrsBuilder attrs_;
  c10::SmallVector<ir::Value, 6> operands_;
  Hash128 strides_;
  bool strided_ = false;
  c10::SmallVector<at::Scalar, 1> large_;  // numbers that small dtypes may not hold
  bool by_zero_ = false;                   // a division by the number 0
  c10::ArrayRef<c10::IValue> outs_;
  const at::Tensor* first_written_ = nullptr;
  c10::Device device_{c10::kXLA, -1};
  const Impl* first_ = nullptr;
  Dims first_strides_;
};

// Records the call on top of `stack` in the given form and replaces its arguments by the results.
void record_boxed(const Form& form, const c10::FunctionSchema& schema, Stack* stack);

// Fails as eager does where dtype t cannot hold s.
void check_fits(const at::Scalar& s, at::ScalarType t);

// An argument with each of its tensors replaced by f(tensor).
c10::IValue map_tensors(const c10::IValue& v, at::Tensor (*f)(const at::Tensor&));

// Pieces shared with the typed kernels.
// Fails where eager fails: writing through a window that overlaps itself.
void check_overlap(const at::Tensor& t);
// Likewise: writing memory that `read` has a part of. The same window is fine.
void check_partial_overlap(const at::Tensor& written, const at::Tensor& read);
at::Tensor wrap(const Inferred& types, size_t i, ir::NodePtr node, c10::Device device);
void write_result(const at::Tensor& to, ir::Value v);  // casts to the tensor's dtype
// out=: resizes as eager does (with its warning), checks the dtype; `exact`: no cast.
// Throws with eager's words where the out= tensor has a dtype that this result may not have.
void check_out(const OpInfo& op, ir::Type result, const at::Tensor& out);
void write_out(const OpInfo& op, const at::Tensor& out, const Result& r, ir::Value v);
void write_side_effects(const OpInfo& op, ir::NodePtr node,
                        const std::function<at::Tensor(size_t)>& arg);

}  // namespace tp::torch_room
