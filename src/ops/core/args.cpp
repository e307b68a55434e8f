// Args and Lowering: how rows read a node's arguments. Pure readers; any thread (a Lowering belongs
// to the thread of its Builder).
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/core/helpers.h"
#include "ops/core/numbers.h"
#include "ops/core/row.h"

namespace tp::ops {
namespace {

using ir::Attr;
using ir::AttrKind;

[[noreturn]] void missing(std::string_view name, std::string_view what) {
  fail(Code::kInternal, cat("argument ", name, " is not recorded as ", what),
       "this is a bug in torch_pjrt: please report it with the program that showed it");
}

IntList all_dims(int rank) {
  IntList v;
  for (int i = 0; i < rank; ++i) v.push_back(i);
  return v;
}

// --- promotion: at::result_type (aten/src/ATen/native/TypeProperties.cpp), by category -----------
// ---------------------

using MaybeDType = std::optional<DType>;

MaybeDType merge(MaybeDType a, MaybeDType b) { return !a ? b : !b ? a : ir::promote(*a, *b); }

MaybeDType combine(MaybeDType higher, MaybeDType lower) {
  if (!higher) return lower;
  if (!lower || ir::is_complex(*higher)) return higher;
  if (ir::is_float(*higher)) {
    return ir::is_complex(*lower) ? ir::complex_dtype(*higher) : higher;
  }
  if (*higher == DType::kPred || ir::is_float(*lower) || ir::is_complex(*lower))
    return merge(higher, lower);
  return higher;
}

// A Python number brings its kind, not its width, which is the default dtype's.
DType number_dtype(DType t, DType default_float) {
  return ir::is_complex(t) ? ir::complex_dtype(default_float) : ir::is_float(t) ? default_float : t;
}

}  // namespace

// --- Args ----------------------------------------------------------------------------------------

// ir::symbol without its registry: lookups are many, and the recorder has registered every name.
bool Args::find(std::string_view name, Attr* out) const {
  return attrs_.find(static_cast<ir::Symbol>(hash_text(name).lo), out);
}

bool Args::has(std::string_view name) const {
  Attr a;
  return find(name, &a) && a.kind != AttrKind::kNone;
}

std::optional<double> Args::number_value(std::string_view name) const {
  int i = operand(name);
  if (i < 0 || static_cast<size_t>(i) >= values_.size()) return std::nullopt;
  const ir::Node& n = *values_[static_cast<size_t>(i)].node;
  if (n.role() != ir::Role::kNumber) return std::nullopt;
  return n.scalar().real();
}

int Args::operand(std::string_view name) const {
  Attr a;
  if (!find(name, &a) || a.kind != AttrKind::kOperand) return -1;
  return static_cast<int>(a.integer());
}

std::vector<int> Args::operands(std::string_view name) const {
  Attr a;
  if (!find(name, &a) || a.kind != AttrKind::kOperands) missing(name, "a tensor list");
  std::vector<int> v;
  for (int64_t i : a.ints()) v.push_back(static_cast<int>(i));
  return v;
}

std::optional<Type> Args::opt_type(std::string_view name) const {
  int i = operand(name);
  return i < 0 ? std::nullopt : std::optional<Type>(types_[static_cast<size_t>(i)]);
}

Type Args::type(std::string_view name) const {
  auto t = opt_type(name);
  if (!t) missing(name, "a tensor");
  return *t;
}

std::vector<Type> Args::types(std::string_view name) const {
  std::vector<Type> v;
  for (int i : operands(name)) v.push_back(i < 0 ? Type() : types_[static_cast<size_t>(i)]);
  return v;
}

int64_t Args::i(std::string_view name) const {
  Attr a;
  if (!find(name, &a)) missing(name, "an integer");
  switch (a.kind) {
    case AttrKind::kInt:
      return a.integer();
    case AttrKind::kBool:
      return a.boolean();
    case AttrKind::kFloat:
      return static_cast<int64_t>(a.real());
    default:
      missing(name, "an integer");
  }
}

double Args::f(std::string_view name) const {
  Attr a;
  if (!find(name, &a)) missing(name, "a number");
  switch (a.kind) {
    case AttrKind::kInt:
      return static_cast<double>(a.integer());
    case AttrKind::kBool:
      return a.boolean() ? 1.0 : 0.0;
    case AttrKind::kFloat:
      return a.real();
    default:
      missing(name, "a number");
  }
}

bool Args::b(std::string_view name) const {
  Attr a;
  if (!find(name, &a)) missing(name, "a bool");
  switch (a.kind) {
    case AttrKind::kBool:
    case AttrKind::kInt:
      return a.integer() != 0;
    case AttrKind::kFloat:
      return a.real() != 0;
    default:
      missing(name, "a bool");
  }
}

bool Args::is_real(std::string_view name) const {
  Attr a;
  return find(name, &a) && a.kind == AttrKind::kFloat;
}

int64_t Args::i_or(std::string_view name, int64_t fallback) const {
  return has(name) ? i(name) : fallback;
}
double Args::f_or(std::string_view name, double fallback) const {
  return has(name) ? f(name) : fallback;
}
bool Args::b_or(std::string_view name, bool fallback) const {
  return has(name) ? b(name) : fallback;
}

DType Args::dtype_or(std::string_view name, DType fallback) const {
  Attr a;
  if (!find(name, &a) || a.kind == AttrKind::kNone) return fallback;
  if (a.kind != AttrKind::kDType) missing(name, "a dtype");
  return a.dtype();
}

std::string_view Args::text_or(std::string_view name, std::string_view fallback) const {
  Attr a;
  if (!find(name, &a) || a.kind == AttrKind::kNone) return fallback;
  if (a.kind != AttrKind::kText) missing(name, "a text");
  return a.text();
}

IntList Args::ints(std::string_view name) const {
  Attr a;
  if (!find(name, &a)) missing(name, "an integer list");
  if (a.kind == AttrKind::kInt) return {a.integer()};
  if (a.kind != AttrKind::kInts && a.kind != AttrKind::kBools) missing(name, "an integer list");
  auto v = a.ints();
  return IntList(v.begin(), v.end());
}

IntList Args::ints_or(std::string_view name, IntList fallback) const {
  return has(name) ? ints(name) : fallback;
}

int64_t wrap_dim(int64_t dim, int64_t rank) {
  int64_t n = std::max<int64_t>(rank, 1);
  if (dim < -n || dim >= n)
    fail(Code::kIndex, cat("Dimension out of range (expected to be in range of [", -n, ", ", n - 1,
                           "], but got ", dim, ")"));
  return dim < 0 ? dim + n : dim;
}

int64_t Args::dim(std::string_view name, int rank) const { return wrap_dim(i(name), rank); }

IntList Args::dims(std::string_view name, int rank) const {
  IntList v = ints_or(name, {});
  if (v.empty()) return all_dims(rank);
  for (int64_t& d : v) d = wrap_dim(d, rank);
  std::sort(v.begin(), v.end());
  auto twice = std::adjacent_find(v.begin(), v.end());
  if (twice != v.end())
    fail(Code::kRuntime, cat("dim ", *twice, " appears multiple times in the list of dims"));
  if (rank == 0) v.clear();
  return v;
}

// Operand dtypes by category, as they come.
class Promotion {
 public:
  explicit Promotion(DType default_float) : default_float_(default_float) {}
  void add(Type t, bool python_number) {
    MaybeDType& slot = python_number ? number_ : t.rank() > 0 ? dimensioned_ : zero_dim_;
    slot = merge(slot, python_number ? number_dtype(t.dtype(), default_float_) : t.dtype());
  }
  MaybeDType result() const { return combine(dimensioned_, combine(zero_dim_, number_)); }

 private:
  DType default_float_;
  MaybeDType dimensioned_, zero_dim_, number_;
};

DType Args::default_float() const { return dtype_or(kDefaultFloat, DType::kF32); }

DType Args::as_float(DType t) const {
  return ir::is_int(t) || t == DType::kPred ? default_float() : t;
}

bool Args::is_python_number(size_t operand) const {
  return !values_.empty() && &values_[operand].node->kind() == &ir::number_kind(true);
}

DType Args::common_dtype(std::initializer_list<std::string_view> names) const {
  Promotion p(default_float());
  for (std::string_view name : names) {
    int i = operand(name);
    if (i >= 0) p.add(types_[static_cast<size_t>(i)], is_python_number(static_cast<size_t>(i)));
  }
  if (!p.result()) missing(*names.begin(), "an operand");
  return *p.result();
}

// A number promotes where it stands for a tensor (self, other); elsewhere it is a parameter (lambd,
// value).
DType Args::common_dtype() const {
  static const ir::Symbol kSelf = ir::symbol("self"), kOther = ir::symbol("other"),
                          kMask = ir::symbol("mask"), kCondition = ir::symbol("condition");
  Promotion p(default_float());
  for (Attr a : attrs_) {
    if (a.kind != AttrKind::kOperand || a.name == kMask || a.name == kCondition) continue;
    auto i = static_cast<size_t>(a.integer());
    bool number = is_python_number(i);
    if (!number || a.name == kSelf || a.name == kOther) p.add(types_[i], number);
  }
  check(p.result().has_value(), "an op whose dtype matters has an operand");
  return *p.result();
}

// --- Lowering ------------------------------------------------------------------------------------

V Lowering::in(std::string_view name) const {
  V v = opt(name);
  if (!v) missing(name, "an operand");
  return v;
}

V Lowering::opt(std::string_view name) const {
  int i = operand(name);
  return i < 0 ? V{} : operands_[static_cast<size_t>(i)];
}

std::vector<V> Lowering::list(std::string_view name) const {
  std::vector<V> v;
  for (int i : operands(name)) v.push_back(i < 0 ? V{} : operands_[static_cast<size_t>(i)]);
  return v;
}

V Lowering::input(std::string_view name, size_t i) const {
  if (inputs_.empty()) return {};
  int place = number_place(*row_of(node_.kind()), attrs_, name);
  return place < 0 ? V{} : inputs_[static_cast<size_t>(place) + i];
}

V Lowering::number(std::string_view name, Type t) {
  V v = opt(name);
  if (!v) v = input(name);
  if (v) return b_.broadcast_to(b_.convert(v, t.dtype()), t.dims());
  Attr a;
  if (find(name, &a) && a.kind == AttrKind::kInt) return b_.constant_int(a.integer(), t);
  return b_.constant(f(name), t);
}

}  // namespace tp::ops
