// Registration of the op table: one boxed functor a row serves the functional, the in-place and the
// out= form, found by matching schemas. No per-op code.
#include <ATen/core/dispatch/Dispatcher.h>

#include <deque>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "client/registry.h"
#include "torch/around.h"
#include "torch/errors.h"
#include "torch/kernels.h"
#include "torch/recorder.h"
#include "torch/schema.h"

namespace tp::torch_room {
namespace {

using c10::OperatorName;

std::vector<std::string> g_table_errors;

// Made at first use: rows are registered while the library is loaded.
std::vector<std::string>& recorded() {
  static auto* all = new std::vector<std::string>;
  return *all;
}

// Row::masks: is this a call for the CPU?
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

bool lacks(Fact f) { return !client::client().capabilities().has(f); }

bool has_doubles(const Stack& stack, size_t args) {
  for (size_t i = stack.size() - args; i < stack.size(); ++i)
    if (stack[i].isTensor() && stack[i].toTensor().defined() &&
        c10::toRealValueType(stack[i].toTensor().scalar_type()) == at::kDouble)
      return true;
  return false;
}

// TorchScript's interpreter gives indices as a list of any type.
void make_typed(const OpInfo& op, Stack& stack, size_t args) {
  for (size_t i = 0; i < op.args.size() && i < args; ++i) {
    c10::IValue& v = stack[stack.size() - args + i];
    if (op.args[i].kind != ArgKind::kOptTensorList || !v.isList() || v.isOptionalTensorList() ||
        v.isTensorList())
      continue;
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& t : v.toListRef()) list.push_back(t.toOptional<at::Tensor>());
    v = std::move(list);
  }
}

class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(Form form, Around around) : form_(form), around_(around) {
    for (const ArgInfo& a : form.op->args) takes_indices_ |= a.kind == ArgKind::kOptTensorList;
  }
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    size_t args = op.schema().arguments().size();
    if (takes_indices_) make_typed(*form_.op, *stack, args);
    ops::Masks masks = form_.op->row->masks;
    if (masks != ops::Masks::kNone && needs_cpu(*stack, args, masks == ops::Masks::kWritten))
      return cpu_fallback(op, stack);
    Fact needs = form_.op->row->for_doubles;
    if (needs != Fact::kNone && lacks(needs) && has_doubles(*stack, args)) [[unlikely]]
      return cpu_fallback(op, stack);
    auto record = [&] { record_boxed(form_, op.schema(), stack); };
    if (around_) [[unlikely]]
      return around_(*stack, args, record);
    record();
  }

 private:
  Form form_;
  bool takes_indices_ = false;
  Around around_;  // or null
};

// Kernels point into it, and threads may still call them when static objects are destroyed.
std::deque<OpInfo>& infos() {
  static auto* all = new std::deque<OpInfo>;
  return *all;
}

bool iterates(const ops::Row& row, const MetaRow* meta) {
  if (row.iterates != ops::Iterates::kAsKernel) return row.iterates == ops::Iterates::kYes;
  switch (row.layout) {
    case ops::Layout::kIterator:
    case ops::Layout::kIteratorReversed:
    case ops::Layout::kIteratorOfRest:
      return true;
    default:
      return meta && meta->kernel == Structured::kIterates;
  }
}

class Registrar {
 public:
  explicit Registrar(torch::Library& m) : lib_(m) {}

  void row(const ops::Row& row) {
    if (std::string_view(row.name).starts_with("torch_pjrt::")) return;
    auto op = c10::Dispatcher::singleton().findSchema(parse_name(row.name));
    if (!op) return error(row, "PyTorch has no operator of this name");
    const OpInfo* info = make_info(row, op->schema());
    if (!info) return;
    if (!info->returns_lists)  // PyTorch makes that form of the in-place one
      add(parse_name(row.name), {info, FormKind::kFunctional, info->args.size()});
    std::string base = parse_name(row.name).name;
    for (const OperatorName& n : overloads_of(base + "_")) derive(*info, op->schema(), n);
    for (const OperatorName& n : overloads_of(base)) derive(*info, op->schema(), n);
    for (const std::string& also : words(row.also))
      if (!derive(*info, op->schema(), parse_name(also)))
        error(row, cat(also, " is not a form of it"));
  }

 private:
  void error(const ops::Row& row, std::string why) {
    g_table_errors.push_back(cat(row.name, ": ", why));
  }

  const OpInfo* make_info(const ops::Row& row, const c10::FunctionSchema& schema) {
    OpInfo i = op_info(row, schema);
    for (const std::string& w : words(row.writes)) {
      auto at = schema.argumentIndexWithName(w);
      if (!at) return error(row, cat("writes ", w, ", which is not an argument")), nullptr;
      i.writes.push_back(static_cast<size_t>(*at));
    }
    const MetaRow* meta = meta_row(row.name);
    i.iterates = iterates(row, meta);
    if (meta) {
      i.exact_out = meta->kernel == Structured::kExact && row.out.dtype == ops::OutDtype::kAsKernel;
      if (!row.type || row.layout == ops::Layout::kMeta) i.meta = meta->function;
    }
    if (!row.type && !i.meta)
      return error(row, "no type rule, and PyTorch has no structured meta function for it"),
             nullptr;
    infos().push_back(std::move(i));
    return &infos().back();
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
    recorded().push_back(name);
    if (TypedAdd add = typed_kernel(name)) return add(lib_, name.c_str(), form.op);
    lib_.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                std::make_unique<Kernel>(form, around(name))));
  }

  torch::Library& lib_;
  std::unordered_set<std::string> done_;
};

}  // namespace

const std::vector<std::string>& table_errors() { return g_table_errors; }
const std::vector<std::string>& recorded_overloads() { return recorded(); }

bool is_number_argument(std::string_view name) {
  for (const OpInfo& i : infos())
    for (const ArgInfo& a : i.args)
      if (a.kind == ArgKind::kScalar && a.name == name) return true;
  return false;
}

void register_rows(torch::Library& m) {
  Registrar r(m);
  for (ops::Family family : ops::table())
    for (const ops::Row& row : family) r.row(row);
}

}  // namespace tp::torch_room
