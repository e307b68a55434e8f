// Registration of the op table: one boxed functor a row serves the functional, the in-place and the
// out= form, found by matching schemas. No per-op code.
#include <ATen/core/dispatch/Dispatcher.h>

#include <deque>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "torch/errors.h"
#include "torch/kernels.h"
#include "torch/recorder.h"

namespace tp::torch_room {
namespace {

using c10::OperatorName;

std::vector<std::string> g_table_errors;

// A mask among the indices picks by value. One mask can be written through (index_put); to read
// through masks, or to mix them with other indices, makes shapes follow from data: the CPU does
// that.
bool needs_cpu(const Stack& stack, size_t args, bool writes) {
  bool mask = false;
  int count = 0;
  for (size_t i = stack.size() - args; i < stack.size(); ++i) {
    if (!stack[i].isOptionalTensorList() && !stack[i].isTensorList()) continue;
    for (const c10::IValue& v : stack[i].toListRef()) {
      if (!v.isTensor() || !v.toTensor().defined()) continue;
      ++count;
      at::ScalarType t = v.toTensor().scalar_type();
      mask = mask || t == at::kBool || t == at::kByte;
    }
  }
  return mask && !(writes && count == 1);
}

enum class Indices : uint8_t { kNone, kRead, kWrite };

class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(Form form, Indices indices) : form_(form), indices_(indices) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    if (indices_ != Indices::kNone &&
        needs_cpu(*stack, op.schema().arguments().size(), indices_ == Indices::kWrite))
      return cpu_fallback(op, stack);
    record_boxed(form_, op.schema(), stack);
  }

 private:
  Form form_;
  Indices indices_;
};

std::vector<std::string> words(std::string_view s) {
  std::vector<std::string> out;
  while (!s.empty()) {
    size_t n = std::min(s.find(' '), s.size());
    if (n) out.emplace_back(s.substr(0, n));
    s.remove_prefix(std::min(n + 1, s.size()));
  }
  return out;
}

bool listed(std::string_view list, std::string_view name) {
  for (const std::string& w : words(list))
    if (w == name) return true;
  return false;
}

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

// Numbers that eager's kernels convert to the result's dtype, by the argument's name.
constexpr std::string_view kMustFit =
    "value alpha beta min max min_val max_val threshold negative_slope lambd";

ArgInfo arg_info(const c10::Argument& a, const ops::Row& row) {
  ArgInfo i{.symbol = ir::symbol(a.name()), .kind = kind_of(a.real_type()), .name = a.name()};
  if (a.name() == "pin_memory") i.kind = ArgKind::kSkip;
  i.must_fit = i.kind == ArgKind::kScalar && listed(kMustFit, a.name());
  i.as_attr = listed(row.baked, a.name());
  i.as_number = listed(row.numbers, a.name());
  const auto& d = a.default_value();
  i.unit_default = i.kind == ArgKind::kScalar && d && d->isInt() && d->toInt() == 1;
  return i;
}

std::string display(const OperatorName& n) {
  return n.overload_name.empty() ? n.name : cat(n.name, ".", n.overload_name);
}

OperatorName parse(std::string_view s) {
  size_t dot = s.find('.');
  if (dot == std::string_view::npos) return {std::string(s), ""};
  return {std::string(s.substr(0, dot)), std::string(s.substr(dot + 1))};
}

bool same_type(const c10::Argument& a, const c10::Argument& b) { return *a.type() == *b.type(); }

bool same_args(const c10::FunctionSchema& a, const c10::FunctionSchema& b, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (a.arguments()[i].name() != b.arguments()[i].name() ||
        !same_type(a.arguments()[i], b.arguments()[i]))
      return false;
  return true;
}

bool is_inplace_of(const c10::FunctionSchema& f, const c10::FunctionSchema& s) {
  size_t n = f.arguments().size();
  return n && s.arguments().size() == n && same_args(f, s, n) && s.arguments()[0].alias_info() &&
         s.arguments()[0].alias_info()->isWrite();
}

// Of the functional's arguments, those that are no tensor options; all where it has none.
size_t without_options(const c10::FunctionSchema& f) {
  size_t n = f.arguments().size();
  bool options = n >= 4 && f.arguments()[n - 4].name() == "dtype" &&
                 f.arguments()[n - 1].name() == "pin_memory";
  return options ? n - 4 : n;
}

// The number of leading arguments that an out= form shares with the functional.
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

class Registrar {
 public:
  explicit Registrar(torch::Library& m) : lib_(m) {
    for (const OperatorName& n : c10::Dispatcher::singleton().getAllOpNames())
      by_name_[n.name].push_back(n);
  }

  void row(const ops::Row& row) {
    if (std::string_view(row.name).starts_with("torch_pjrt::")) return;
    auto op = c10::Dispatcher::singleton().findSchema(parse(row.name));
    if (!op) return error(row, "PyTorch has no operator of this name");
    const OpInfo* info = make_info(row, op->schema());
    if (!info) return;
    add(parse(row.name), {info, FormKind::kFunctional, info->args.size()});
    std::string base = parse(row.name).name;
    for (const OperatorName& n : by_name_[base + "_"]) derive(*info, op->schema(), n);
    for (const OperatorName& n : by_name_[base]) derive(*info, op->schema(), n);
    for (const std::string& also : words(row.also))
      if (!derive(*info, op->schema(), parse(also))) error(row, cat(also, " is not a form of it"));
  }

 private:
  void error(const ops::Row& row, std::string why) {
    g_table_errors.push_back(cat(row.name, ": ", why));
  }

  const OpInfo* make_info(const ops::Row& row, const c10::FunctionSchema& schema) {
    OpInfo i{&row, &ops::kind_of(row), {}, schema.returns().size()};
    i.base_name = row.name;
    for (const c10::Argument& a : schema.arguments()) i.args.push_back(arg_info(a, row));
    i.returns_list = schema.returns().size() == 1 &&
                     schema.returns()[0].type()->kind() == c10::TypeKind::ListType;
    for (const std::string& w : words(row.writes)) {
      auto at = schema.argumentIndexWithName(w);
      if (!at) return error(row, cat("writes ", w, ", which is not an argument")), nullptr;
      i.writes.push_back(static_cast<size_t>(*at));
    }
    if (const MetaRow* meta = meta_row(row.name)) {
      i.exact_out = meta->exact_out;
      if (!row.type) i.meta = meta->function;
    }
    if (!row.type && !i.meta)
      return error(row, "no type rule, and PyTorch has no structured meta function for it"),
             nullptr;
    infos_.push_back(std::move(i));
    return &infos_.back();
  }

  bool derive(const OpInfo& info, const c10::FunctionSchema& functional, const OperatorName& n) {
    auto op = c10::Dispatcher::singleton().findSchema(n);
    if (!op) return false;
    if (is_inplace_of(functional, op->schema()))
      return add(n, {&info, FormKind::kInplace, info.args.size()}), true;
    if (auto leading = is_out_of(functional, op->schema()))
      return add(n, {&info, FormKind::kOut, *leading}), true;
    return false;
  }

  void add(const OperatorName& n, Form form) {
    std::string name = display(n);
    if (!done_.insert(name).second) return;
    auto op = c10::Dispatcher::singleton().findSchema(n);
    if (op->hasKernelForDispatchKey(c10::DispatchKey::XLA))
      return;  // written by hand (factories, views)
    if (TypedAdd add = typed_kernel(name)) return add(lib_, name.c_str(), form.op);
    Indices indices = name.starts_with("aten::index.")            ? Indices::kRead
                      : name.starts_with("aten::_index_put_impl") ? Indices::kWrite
                                                                  : Indices::kNone;
    lib_.impl(name.c_str(),
              torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(form, indices)));
  }

  torch::Library& lib_;
  std::unordered_map<std::string, std::vector<OperatorName>> by_name_;
  std::unordered_set<std::string> done_;
  static std::deque<OpInfo> infos_;  // kernels point into it
};
std::deque<OpInfo> Registrar::infos_;

}  // namespace

const std::vector<std::string>& table_errors() { return g_table_errors; }

void register_rows(torch::Library& m) {
  Registrar r(m);
  for (ops::Family family : ops::table())
    for (const ops::Row& row : family) r.row(row);
}

}  // namespace tp::torch_room
