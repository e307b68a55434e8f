#include "torch/host_op.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/ATen_fwd.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/AutogradState.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "base/forks.h"
#include "base/text.h"
#include "client/host_call.h"
#include "client/registry.h"
#include "ops/host/host.h"
#include "probe/probe.h"
#include "torch/errors.h"
#include "torch/named_tables.h"
#include "torch/runtime.h"
#include "torch/schema.h"

namespace tp::torch_room {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// --- which ops -----------------------------------------------------------------------------------

// Tagged as of a shape that follows from values, but not with these arguments.
struct Exception {
  const char* op;
  bool (*fits)(const c10::FunctionSchema& schema, Arguments args);
};

const c10::IValue& argument(const c10::FunctionSchema& s, Arguments args, const char* name) {
  return args[static_cast<size_t>(*s.argumentIndexWithName(name))];
}

// gelss and gelsd give residuals of a tall matrix only where its rank, which they compute, is full.
bool lstsq_fits(const c10::FunctionSchema& s, Arguments args) {
  const c10::IValue& driver = argument(s, args, "driver");
  const at::Tensor& self = argument(s, args, "self").toTensor();
  if (driver.isNone() || self.dim() < 2 || self.size(-2) <= self.size(-1)) return true;
  return driver.toStringView() != "gelss" && driver.toStringView() != "gelsd";
}

constexpr Exception kExceptions[] = {{"aten::linalg_lstsq", lstsq_fits}};

const Exception* exception_of(const std::string& op) {
  for (const Exception& e : kExceptions)
    if (op == e.op) return &e;
  return nullptr;
}

bool is_tensors(const c10::TypePtr& t) {
  if (t->kind() == c10::TypeKind::TensorType) return true;
  return t->kind() == c10::TypeKind::ListType &&
         t->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::TensorType;
}

// A function of its arguments that gives tensors.
bool is_functional(const c10::FunctionSchema& s) {
  if (s.returns().empty()) return false;
  for (const c10::Argument& r : s.returns())
    if (r.alias_info() || !is_tensors(r.type())) return false;
  for (const c10::Argument& a : s.arguments())
    if (a.alias_info()) return false;
  return true;
}

bool fits_by_tags(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::nondeterministic_seeded) || op.hasTag(at::Tag::data_dependent_output))
    return false;
  return !op.hasTag(at::Tag::dynamic_output_shape) || exception_of(display(op.operator_name()));
}

// --- forms ---------------------------------------------------------------------------------------

// An overload as a form of a functional one that can be a host op; memoised for the process.
struct HostForm {
  OpInfo info;
  FormKind kind;
  const Exception* exception;
  probe::Counter& counter;
};

// The overload of `base` for which `is(schema)` holds.
template <class F>
std::optional<c10::OperatorHandle> find_overload(const std::string& base, const F& is) {
  for (const c10::OperatorName& n : overloads_of(base))
    if (auto op = c10::Dispatcher::singleton().findSchema(n); op && is(op->schema())) return op;
  return std::nullopt;
}

struct Origin {
  c10::OperatorHandle functional;
  FormKind kind;
};
std::optional<Origin> origin_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& s = op.schema();
  if (is_functional(s)) return Origin{op, FormKind::kFunctional};
  std::string base = s.name();
  auto out = find_overload(base, [&](const c10::FunctionSchema& f) {
    return is_functional(f) && is_out_of(f, s) == f.arguments().size();
  });
  if (out) return Origin{*out, FormKind::kOut};
  if (!base.ends_with('_')) return std::nullopt;
  base.pop_back();
  auto inplace = find_overload(
      base, [&](const c10::FunctionSchema& f) { return is_functional(f) && is_inplace_of(f, s); });
  if (inplace) return Origin{*inplace, FormKind::kInplace};
  return std::nullopt;
}

std::unique_ptr<HostForm> make_form(const c10::OperatorHandle& op) {
  // Other namespaces' tags and purity are not known.
  const std::string& full = op.operator_name().name;
  if (!full.starts_with("aten::") && !full.starts_with("torch_pjrt::")) return nullptr;
  auto origin = origin_of(op);
  if (!origin || !fits_by_tags(origin->functional)) return nullptr;
  std::string name = display(origin->functional.operator_name());
  const ops::Row& row = ops::host_row(name);
  auto form = std::make_unique<HostForm>(HostForm{
      op_info(row, origin->functional.schema()), origin->kind, exception_of(name),
      probe::counter(cat("hostop::", std::string_view(name).substr(name.find("::") + 2)))});
  // Another tolerance is no other program.
  for (ArgInfo& a : form->info.args) {
    a.as_number = a.kind == ArgKind::kFloat;
    a.must_fit = false;  // the kernel looks
  }
  if (const MetaRow* meta = meta_row(row.name)) {
    form->info.meta = meta->function;
    form->info.exact_out = meta->kernel == Structured::kExact;
  }
  form->info.cpu = origin->functional;
  return form;
}

const HostForm* form_of(const c10::OperatorHandle& op) {
  static TableMutex mu;
  static auto* forms = new std::unordered_map<c10::OperatorName, std::unique_ptr<HostForm>>;
  {
    std::lock_guard lock(mu);
    auto it = forms->find(op.operator_name());
    if (it != forms->end()) return it->second.get();
  }
  auto made = make_form(op);
  std::lock_guard lock(mu);
  return forms->emplace(op.operator_name(), std::move(made)).first->second.get();
}

// --- which calls ---------------------------------------------------------------------------------

bool of_device(const at::Tensor& t, bool* any) {
  if (!t.defined()) return true;
  if (impl_or_null(t)) return *any = true;
  return t.device().is_cpu() && t.dim() == 0 && t.layout() == at::kStrided;
}

bool takes(ArgKind kind, const c10::IValue& v, bool* any) {
  if (v.isNone()) return true;
  switch (kind) {
    case ArgKind::kGenerator:
      return false;
    case ArgKind::kSkip:  // device, layout, memory format; pin_memory may be false
      return v.isBool() && !v.toBool();
    case ArgKind::kTensor:
      return v.isTensor() && of_device(v.toTensor(), any);
    case ArgKind::kTensorList:
    case ArgKind::kOptTensorList:
      for (const c10::IValue& e : v.toListRef())
        if (!e.isNone() && !of_device(e.toTensor(), any)) return false;
      return true;
    default:
      return true;
  }
}

bool takes(const HostForm& form, const c10::FunctionSchema& schema, Arguments args) {
  bool any = false;
  for (size_t i = 0; i < form.info.args.size(); ++i)
    if (!takes(form.info.args[i].kind, args[i], &any)) return false;
  for (size_t i = form.info.args.size(); i < args.size(); ++i)  // out=
    for (const at::Tensor& t : tensors_of({args[i]}))
      if (!t.defined() || !impl_or_null(t)) return false;
  return any && (!form.exception || form.exception->fits(schema, args));
}

// --- dry runs ------------------------------------------------------------------------------------

// Zeros are valid indices, lengths and targets; an identity on the diagonal makes a matrix that
// every factorisation takes.
at::Tensor sample_of(const at::Tensor& t) {
  if (!t.defined() || !impl_or_null(t)) return t;
  at::Tensor s = at::empty_strided(t.sizes(), t.strides(), at::TensorOptions(t.scalar_type()));
  if (s.numel() == 0) return s;
  std::memset(s.mutable_data_ptr(), 0, s.storage().nbytes());
  bool inexact = at::isFloatingType(s.scalar_type()) || at::isComplexType(s.scalar_type());
  if (inexact && s.dim() >= 2) s.diagonal(0, -2, -1).fill_(1);
  return s;
}

bool is_plain(const at::Tensor& t) {
  return !t.defined() ||
         (t.layout() == at::kStrided && t.device().is_cpu() && !t.is_quantized() && !t.is_nested());
}

}  // namespace

std::vector<std::string_view> exception_names() {
  std::vector<std::string_view> names;
  for (const Exception& e : kExceptions) names.emplace_back(e.op);
  return names;
}

// The client answers once; asking may start it, so nobody waits here with the GIL.
bool client_calls_back() {
  enum : int { kUnknown, kNo, kYes };
  static std::atomic<int> answer{kUnknown};
  if (int a = answer.load(std::memory_order_acquire); a != kUnknown) return a == kYes;
  GilRelease no_gil;
  client::ComputationClient& c = client::client();
  bool yes = client::has_host_calls(c);
  if (yes) client::register_host_call(c, ops::kHostTarget, &run_host_op);
  answer.store(yes ? kYes : kNo, std::memory_order_release);
  return yes;
}

bool is_host_op(std::string_view name) {
  for (const c10::OperatorName& n : overloads_of(parse_name(name).name))
    if (auto op = c10::Dispatcher::singleton().findSchema(n); op && form_of(*op)) return true;
  return false;
}
KernelsOnly::KernelsOnly()
    : keys_(c10::default_included_set - c10::autograd_dispatch_keyset_with_ADInplaceOrView,
            c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView) {}

void call_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  KernelsOnly guard;
  op.callBoxed(stack);
}

std::vector<at::Tensor> tensors_of(const Stack& results) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& v : results) {
    if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorVector()) out.push_back(t);
    } else {
      out.push_back(v.toTensor());
    }
  }
  return out;
}

std::vector<at::Tensor> dry_run(const c10::OperatorHandle& op, Stack stack) {
  std::vector<at::Tensor> out;
  try {
    for (c10::IValue& v : stack) v = map_tensors(v, sample_of);
    call_on_cpu(op, &stack);
    out = tensors_of(stack);
  } catch (const std::exception&) {
    throw ops::NoType();
  }
  for (const at::Tensor& t : out)
    if (!is_plain(t)) throw ops::NoType();
  return out;
}

std::optional<c10::OperatorHandle> out_form(const c10::OperatorHandle& functional) {
  const c10::FunctionSchema& f = functional.schema();
  return find_overload(f.name(), [&](const c10::FunctionSchema& s) {
    return is_out_of(f, s) == f.arguments().size();
  });
}

bool record_host_op(const c10::OperatorHandle& op, Stack* stack) {
  const HostForm* form = form_of(op);
  if (!form) return false;
  const c10::FunctionSchema& schema = op.schema();
  Arguments args(*stack);
  if (!takes(*form, schema, args.slice(stack->size() - schema.arguments().size()))) return false;
  if (!client_calls_back()) return false;
  std::string_view checked =
      checked_name(schema, args.slice(stack->size() - schema.arguments().size()));
  try {
    record_boxed({&form->info, form->kind, form->info.args.size()}, schema, stack);
  } catch (const ops::NoType&) {
    return false;  // the CPU's kernel says what is wrong with the values, or takes them
  }
  form->counter.add();
  if (!checked.empty())
    raise_here(checked,
               {stack->end() - static_cast<int64_t>(schema.returns().size()), stack->end()});
  return true;
}

}  // namespace tp::torch_room
