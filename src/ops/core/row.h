// The op table's row. Adding an op is one row in a family file plus, where no helper fits, a
// lowering. Rows are constants; lowerings and type rules are pure functions: any thread.
#pragma once
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hlo/builder.h"
#include "ir/attrs.h"
#include "ir/node.h"
#include "ops/core/eager_rules.h"

namespace tp::ops {

using hlo::Builder;
using hlo::IntList;
using hlo::Ints;
using hlo::V;
using ir::DType;
using ir::Type;

// Reads an op's arguments by their schema names. Missing or None: the optional forms are empty, the
// others throw kInternal. Integers given as numbers (Scalar arguments kept as attributes) read as
// either kind.
class Args {
 public:
  // `operands` tell Python numbers from tensors; a rule that promotes dtypes needs them.
  Args(ir::AttrsView attrs, std::span<const Type> types, std::span<const ir::Value> operands = {})
      : attrs_(attrs), types_(types), values_(operands) {}
  bool has(std::string_view name) const;  // present and not None
  Type type(std::string_view name) const;
  std::optional<Type> opt_type(std::string_view name) const;
  std::vector<Type> types(std::string_view name) const;  // a tensor list
  int64_t i(std::string_view name) const;
  int64_t i_or(std::string_view name, int64_t fallback) const;
  double f(std::string_view name) const;
  double f_or(std::string_view name, double fallback) const;
  bool is_real(std::string_view name) const;  // a number kept as attribute that came as a float
  bool b(std::string_view name) const;
  bool b_or(std::string_view name, bool fallback) const;
  DType dtype_or(std::string_view name, DType fallback) const;
  DType default_float() const;  // torch.get_default_dtype() of the call: kDefaultFloat
  // The dtype that whole numbers and bools are computed in as floats: others stay what they are.
  DType as_float(DType t) const;
  std::string_view text_or(std::string_view name, std::string_view fallback) const;
  IntList ints(std::string_view name) const;  // also a bool list
  IntList ints_or(std::string_view name, IntList fallback) const;
  // dim arguments wrapped into 0..rank-1 (rank 0 counts as 1, as PyTorch's maybe_wrap_dim does);
  // throws kIndex with eager's words.
  int64_t dim(std::string_view name, int rank) const;
  // Reduction dims, wrapped and sorted; None or empty: all of them.
  IntList dims(std::string_view name, int rank) const;
  // The value of a run-time number, where the argument is one and the operands were given.
  std::optional<double> number_value(std::string_view name) const;
  // Position of a tensor argument among the operands; -1 where None.
  int operand(std::string_view name) const;
  std::vector<int> operands(
      std::string_view name) const;  // of a tensor list; -1 for an absent element
  // The dtype that eager computes these arguments in: promotion by category (dimensioned tensors
  // beat 0-d ones beat Python numbers), PyTorch's at::result_type.
  DType common_dtype(std::initializer_list<std::string_view> names) const;
  DType common_dtype() const;  // of all tensor arguments but masks

 protected:
  bool find(std::string_view name, ir::Attr* out) const;
  bool is_python_number(size_t operand) const;
  ir::AttrsView attrs_;
  std::span<const Type> types_;
  std::span<const ir::Value> values_;
};

// What a lowering sees: the arguments, with operands as SSA values, and the result types to
// produce.
class Lowering : public Args {
 public:
  // `inputs`: the node's numbers (Row::general) that are inputs of the program, as 0-d s64 or f64
  // values; invalid V for one that stays as recorded. Empty: all stay.
  Lowering(Builder& builder, const ir::Node& node, std::span<const V> operands,
           std::span<const Type> types, std::span<const V> inputs = {})
      : Args(node.attrs(), types, node.operands()),
        b_(builder),
        node_(node),
        operands_(operands),
        inputs_(inputs) {}
  Builder& builder() { return b_; }
  V in(std::string_view name) const;  // a tensor or run-time number argument
  V in(size_t operand) const { return operands_[operand]; }
  V opt(std::string_view name) const;  // invalid V where None
  std::vector<V> list(
      std::string_view name) const;  // a tensor list; invalid V for an absent element
  Type out(size_t i = 0) const { return node_.types()[i]; }
  const ir::Node& node() const { return node_; }
  // The number of attribute `name` where it is an input, element i of a list; else an invalid V.
  V input(std::string_view name, size_t i = 0) const;
  std::span<const V> inputs() const { return inputs_; }
  // A run-time number or a tensor: converted to t (a number may be integer, float, bool) and, where
  // needed, broadcast to dims.
  V number(std::string_view name, Type t);

 private:
  Builder& b_;
  const ir::Node& node_;
  std::span<const V> operands_, inputs_;
};

// A number among a node's attributes: the bits of an int64_t or of a double.
struct Number {
  bool real = false;
  int64_t bits = 0;
  friend bool operator==(const Number&, const Number&) = default;
};

// Result types from argument types. Throws Error with eager's words for bad arguments.
using TypeRule = void (*)(const Args& a, std::vector<Type>& out);
// Throws with eager's words where eager's CPU kernel would.
using CheckRule = void (*)(const Args& a);
// Appends the op's outputs in order; an output whose type is null gets an invalid V.
using LowerRule = void (*)(Lowering& l, std::vector<V>& out);

// Splits a node's attributes where Row::general's names do not do (ops/core/numbers.h).
using SplitRule = void (*)(const Args& a, std::vector<uint64_t>& structure,
                           std::vector<Number>& values);

// How eager lays out the first result; only strides depend on it, never values.
enum class Layout : unsigned char {
  kContiguous,
  kIterator,          // elementwise: what PyTorch's TensorIterator makes of all tensor arguments
  kIteratorReversed,  // the same, the last argument first
  kIteratorOfRest,    // the same, but the first argument, a condition, is not promoted
  kSuggested,         // channels_last where one of the first two operands is
  kMeta,              // what the op's function in torch/meta_own.cpp gives
  kCopyOfFirst,       // clone: the (dense) strides of the first operand, those of size-1 dims too
};

// Why an op needs care in recording.
// kProducts: float32 products follow torch.set_float32_matmul_precision; a setting below "highest"
// is the attribute kPrecision.
enum class Special : unsigned char { kNone, kRandom, kProducts };
inline constexpr const char* kPrecision = "float32_precision";  // 1: high, 2: medium
// The default dtype, an attribute of every call recorded while it is not float32: results' types
// follow from a node's attributes and operands.
inline constexpr const char* kDefaultFloat = "default_float";

struct Row {
  const char* name;         // the functional overload: "aten::add.Tensor"
  TypeRule type = nullptr;  // null: PyTorch's structured meta function of that overload
  LowerRule lower = nullptr;
  Layout layout =
      Layout::kContiguous;  // used with `type` only; meta functions give strides themselves
  Special special =
      Special::kNone;  // kRandom: two extra s64 operands "seed" and "offset" are added
  // Scalar arguments are run-time numbers (operands) by default; the ones named here select or
  // shape and are baked as attributes ("dim exponent").
  const char* baked = "";
  // double/float arguments are attributes by default; the ones named here become run-time numbers.
  const char* numbers = "";
  // In-place or out= forms whose names do not follow from `name`: "aten::normal_".
  const char* also = "";
  // Arguments that the op writes although its schema does not say so (running_mean): the node has
  // one more output for each, in this order, behind the schema's results.
  const char* writes = "";
  // Checks that eager has in its kernels only, which shape functions pass.
  CheckRule check = nullptr;
  // Number attributes that select without shaping the result ("eps", "index"). They are constants
  // of the program, until one changes while all else stays: then it is an input from there on.
  // Lowerings read them by number() and input(), never by i() or f() alone.
  const char* general = "";
  // For rows whose numbers follow from several attributes (a view's offset is some slice's start):
  // appends the numbers, and the structure that they leave. `general` names what they come from.
  SplitRule split = nullptr;
  // Eager's CPU kernels, with the dtypes that they take. None: what the shape function takes.
  Kernels kernels = {};
  Iterates iterates = Iterates::kAsKernel;
  Out out = {};
  // Throws with eager's words where the in-place form may not write a tensor of that dtype.
  void (*check_inplace)(DType self) = nullptr;
  // Eager refuses some values of the run-time numbers, in its shape function or `check`.
  bool refuses_numbers = false;
  // Integers by what may be the number 0: eager raises then; of tensors nobody looks.
  bool divides = false;
  Masks masks = Masks::kNone;
  // Calls with a tensor of float64 or complex128 need this of the plugin; without it they run on
  // the CPU, which cuts the graph.
  Fact for_doubles = Fact::kNone;
  const IndexRule* index = nullptr;  // the values that an index argument may have
  bool effects = false;  // beyond its results: a compiler may not drop, move or merge it
  // About one instruction an element, or a window: XLA's fusions compute it again for each user
  // rather than keep its result, which is quadratic where every value of a chain is kept.
  bool recomputed = false;
  // Is PyTorch's CPU kernel faster than XLA's code for CPUs, for this call (ops/host/choice.h)?
  // Null: never. Then the node is a call of `host_name` in the program, where it may call this
  // process.
  bool (*faster_on_host)(const Lowering& l) = nullptr;
  const char* host_name = nullptr;  // null: `name`
};

using Family = std::span<const Row>;

// Throws with eager's words what eager's CPU kernel of this op would reject though its shape
// function does not: Row::check and Row::kernels. The recorder asks behind the type rule, at a
// miss.
void check_call(const Row& row, const Args& args);
// The same for an out= tensor of that dtype (Row::out), and for one that the in-place form writes.
void check_out(const Row& row, DType result, DType out);
void check_inplace(const Row& row, DType self);

// All rows, family by family. Families are functions so that there is no static-initialisation
// order.
std::span<const Family> table();
// The row of a name, or null.
const Row* find_row(std::string_view name);
// Every row has one OpKind for its nodes; row_of is the way back (null for leaves).
const ir::OpKind& kind_of(const Row& row);
const Row* row_of(const ir::OpKind& kind);

}  // namespace tp::ops
