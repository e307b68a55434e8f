#include "torch/schema.h"

#include <unordered_map>

#include "base/text.h"
#include "torch/compat.h"
#include "torch/named_tables.h"

namespace tp::torch_room {

using c10::OperatorName;

std::vector<std::string> words(std::string_view s) {
  std::vector<std::string> out;
  any_word(s, [&](std::string_view word) {
    out.emplace_back(word);
    return false;
  });
  return out;
}

namespace {

ArgKind list_kind(const c10::TypePtr& element) {
  switch (element->kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::kTensorList;
    case c10::TypeKind::OptionalType:
      return ArgKind::kOptTensorList;
    case c10::TypeKind::BoolType:
      return ArgKind::kBools;
    case c10::TypeKind::FloatType:
      return ArgKind::kFloats;
    default:
      return ArgKind::kInts;
  }
}

ArgKind kind_of(c10::TypePtr t) {
  if (auto o = t->cast<c10::OptionalType>()) t = o->getElementType();
  switch (t->kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::kTensor;
    case c10::TypeKind::NumberType:
      return ArgKind::kScalar;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgKind::kInt;
    case c10::TypeKind::FloatType:
      return ArgKind::kFloat;
    case c10::TypeKind::BoolType:
      return ArgKind::kBool;
    case c10::TypeKind::StringType:
      return ArgKind::kText;
    case c10::TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case c10::TypeKind::ScalarTypeType:
      return ArgKind::kDType;
    case c10::TypeKind::ListType:
      return list_kind(t->expectRef<c10::ListType>().getElementType());
    default:
      return ArgKind::kSkip;  // Device, Layout, MemoryFormat
  }
}

bool same_type(const c10::Argument& a, const c10::Argument& b) { return *a.type() == *b.type(); }

bool same_args(const c10::FunctionSchema& a, const c10::FunctionSchema& b, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (a.arguments()[i].name() != b.arguments()[i].name() ||
        !same_type(a.arguments()[i], b.arguments()[i]))
      return false;
  return true;
}

}  // namespace

// Numbers that eager's kernels convert to the result's dtype, by the argument's name.
constexpr std::string_view kMustFit =
    "value alpha beta min max min_val max_val threshold negative_slope lambd";

// Baked numbers whose rows take a complex one as an operand.
constexpr std::string_view kMayBeComplex = "exponent";

std::vector<std::string_view> number_names() {
  std::vector<std::string_view> names;
  for (std::string_view list : {kMustFit, kMayBeComplex})
    any_word(list, [&](std::string_view name) {
      names.push_back(name);
      return false;
    });
  return names;
}

ArgInfo arg_info(const c10::Argument& a, const ops::Row& row) {
  std::string name = compat::name_in_row(row.name, a.name());
  ArgInfo i{.symbol = ir::symbol(name), .kind = kind_of(a.real_type()), .name = name};
  if (name == "pin_memory") i.kind = ArgKind::kSkip;
  i.must_fit = i.kind == ArgKind::kScalar && has_word(kMustFit, name);
  i.as_attr = has_word(row.baked, name);
  i.unless_complex = i.as_attr && has_word(kMayBeComplex, name);
  i.as_number = has_word(row.numbers, name);
  const auto& d = a.default_value();
  i.unit_default = i.kind == ArgKind::kScalar && d && d->isInt() && d->toInt() == 1;
  return i;
}

const std::vector<OperatorName>& overloads_of(const std::string& base) {
  static const auto* all = [] {
    auto* m = new std::unordered_map<std::string, std::vector<OperatorName>>;
    for (const OperatorName& n : c10::Dispatcher::singleton().getAllOpNames())
      (*m)[n.name].push_back(n);
    return m;
  }();
  static const std::vector<OperatorName> none;
  auto it = all->find(base);
  return it == all->end() ? none : it->second;
}

std::string display(const OperatorName& n) {
  return n.overload_name.empty() ? n.name : cat(n.name, ".", n.overload_name);
}

OperatorName parse_name(std::string_view s) {
  size_t dot = s.find('.');
  if (dot == std::string_view::npos) return {std::string(s), ""};
  return {std::string(s.substr(0, dot)), std::string(s.substr(dot + 1))};
}

OpInfo op_info(const ops::Row& row, const c10::FunctionSchema& schema) {
  OpInfo i;
  i.row = &row;
  i.kind = &ops::kind_of(row);
  i.num_returns = schema.returns().size();
  i.base_name = row.name;
  for (const c10::Argument& a : schema.arguments()) i.args.push_back(arg_info(a, row));
  for (const c10::Argument& r : schema.returns()) {
    bool list = r.type()->kind() == c10::TypeKind::ListType;
    (i.num_returns == 1 ? i.returns_list : i.returns_lists) |= list;
  }
  return i;
}

bool is_inplace_of(const c10::FunctionSchema& f, const c10::FunctionSchema& s) {
  size_t n = f.arguments().size();
  return n && s.arguments().size() == n && same_args(f, s, n) && s.arguments()[0].alias_info() &&
         s.arguments()[0].alias_info()->isWrite();
}

namespace {

// Of the functional's arguments, those that are no tensor options; all where it has none.
size_t without_options(const c10::FunctionSchema& f) {
  size_t n = f.arguments().size();
  bool options = n >= 4 && f.arguments()[n - 4].name() == "dtype" &&
                 f.arguments()[n - 1].name() == "pin_memory";
  return options ? n - 4 : n;
}

}  // namespace

std::optional<size_t> is_out_of(const c10::FunctionSchema& f, const c10::FunctionSchema& s) {
  size_t all = s.arguments().size(), r = f.returns().size();
  for (size_t n : {f.arguments().size(), without_options(f)}) {
    if (all != n + r || !same_args(f, s, n)) continue;
    bool outs = true;
    for (size_t i = n; i < all; ++i) outs = outs && s.arguments()[i].is_out();
    if (outs) return n;
  }
  return std::nullopt;
}

}  // namespace tp::torch_room
