// The CPU's kernel for an op that the device has none for: tensors are read (a graph cut), the
// kernel runs on the copies, what it wrote and what it gives is put back. What could not be put
// back is refused before anything runs. Any thread.
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_copy_from_and_resize.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/forks.h"
#include "base/hash.h"
#include "base/lru.h"
#include "base/text.h"
#include "probe/probe.h"
#include "torch/checks.h"
#include "torch/cuts.h"
#include "torch/errors.h"
#include "torch/kernels.h"
#include "torch/random.h"
#include "torch/recorder.h"
#include "torch/schema.h"

namespace tp::torch_room {
namespace {

// One warning for each (op, user's line).
void warn_fallback(const std::string& op) {
  static TableMutex mu;
  static LruMap<std::string, bool> seen(4096);
  std::string where = user_frame();
  {
    std::lock_guard lock(mu);
    std::string here = op + "@" + where;
    if (seen.get(here)) return;
    seen.put(here, true);
  }
  TORCH_WARN("torch_pjrt: ", op,
             " has no lowering for this call and runs on the CPU, which cuts the graph",
             where.empty() ? "" : " (at " + where + ")", ". Counter: ", op);
}

// A generator of device xla becomes a CPU one seeded from it, so that the same seed draws the same
// numbers.
c10::IValue on_cpu(const at::Generator& g) {
  if (!g.defined() || g.device().type() != c10::kXLA) return g;
  auto [seed, offset] = next_random(g);
  at::Generator cpu = at::globalContext().defaultGenerator(c10::kCPU).clone();
  cpu.set_current_seed(static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15ull +
                       static_cast<uint64_t>(offset));
  return cpu;
}

// --- what is refused -----------------------------------------------------------------------------

constexpr std::string_view kHow =
    "move the tensors with .cpu() for this call, or register a kernel for device xla: "
    "torch.library.impl(name, \"xla\")";

// Their schemas do not say what they write, and they write after they have returned.
constexpr std::string_view kCollectives =
    "c10d _c10d_functional _c10d_functional_autograd c10d_functional symm_mem";

void check_namespace(const std::string& name) {
  if (!has_word(kCollectives, name.substr(0, name.find("::")))) return;
  fail(Code::kNotImplemented,
       cat(name,
           ": this process group has no device xla (gloo carries CPU tensors only), and what it "
           "receives for a tensor of xla would be lost"),
       "torch.distributed.init_process_group(\"xla\") and the calls of torch.distributed; or give "
       "single calls CPU tensors (x.cpu()) and move the results to xla");
}

bool is_plain(const c10::IValue& v) {
  return v.isTensor() || v.isTensorList() || v.isOptionalTensorList();
}

bool holds_tensor(const c10::IValue& v) {
  auto any = [](const auto& items) {
    for (const c10::IValue& item : items)
      if (holds_tensor(item)) return true;
    return false;
  };
  if (v.isTensor()) return v.toTensor().defined();
  if (v.isTuple()) return any(v.toTupleRef().elements());
  if (v.isList()) return any(v.toListRef());
  if (!v.isGenericDict()) return false;
  for (const auto& item : v.toGenericDict())
    if (holds_tensor(item.value())) return true;
  return false;
}

bool holds_tensor(const c10::Type& t) {
  if (t.kind() == c10::TypeKind::TensorType) return true;
  for (const c10::TypePtr& inner : t.containedTypes())
    if (holds_tensor(*inner)) return true;
  return false;
}

// Tensor, Tensor?, Tensor[], Tensor?[].
bool is_plain(const c10::Type& t) {
  if (t.kind() == c10::TypeKind::TensorType) return true;
  auto inner = t.containedTypes();
  bool one = t.kind() == c10::TypeKind::OptionalType || t.kind() == c10::TypeKind::ListType;
  return one && inner.size() == 1 &&
         (inner[0]->kind() == c10::TypeKind::TensorType ||
          (t.kind() == c10::TypeKind::ListType && inner[0]->kind() == c10::TypeKind::OptionalType &&
           is_plain(*inner[0])));
}

void check_putable(const std::string& name, const c10::FunctionSchema& schema,
                   c10::ArrayRef<c10::IValue> args) {
  for (const c10::Argument& r : schema.returns()) {
    if (r.alias_info() && !r.alias_info()->isWrite())
      fail(Code::kRuntime,
           cat(name, ": it gives a view of its argument, and the CPU's would be a view of a copy"),
           std::string(kHow));
    if (holds_tensor(*r.type()) && !is_plain(*r.type()))
      fail(Code::kNotImplemented,
           cat(name, ": it gives a ", r.type()->str(), ", whose tensors would stay on the CPU"),
           std::string(kHow));
  }
  for (size_t i = 0; i < args.size(); ++i)
    if (!is_plain(args[i]) && holds_tensor(args[i]))
      fail(Code::kNotImplemented,
           cat(name, ": its argument '", schema.arguments()[i].name(), "' holds tensors inside a ",
               args[i].tagKind(), ", which cannot be copied to the CPU and put back"),
           std::string(kHow));
}

// --- arguments -----------------------------------------------------------------------------------

template <class F>
void each_tensor(const c10::IValue& v, F&& f) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) f(v.toTensor());
  } else if (is_plain(v)) {
    for (const c10::IValue& t : v.toListRef())
      if (t.isTensor() && t.toTensor().defined()) f(t.toTensor());
  }
}

template <class F>
c10::IValue mapped(const c10::IValue& v, F&& f) {
  if (v.isTensor()) return v.toTensor().defined() ? c10::IValue(f(v.toTensor())) : v;
  if (v.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& t : v.toTensorList()) list.push_back(t.defined() ? f(t) : t);
    return list;
  }
  if (!v.isOptionalTensorList()) return v;
  c10::List<std::optional<at::Tensor>> list;
  for (const std::optional<at::Tensor>& t : v.toOptionalTensorList())
    list.push_back(t && t->defined() ? std::optional<at::Tensor>(f(*t)) : t);
  return list;
}

bool is_written(const c10::Argument& a) { return a.alias_info() && a.alias_info()->isWrite(); }

// The CPU's copies of device tensors. Windows onto one memory that the op writes are windows onto
// one copy of it, so that each sees what is written through another.
class Copies {
 public:
  void note(const at::Tensor& t, bool written) {
    if (Impl* p = impl_or_null(t)) {
      Memory& m = memories_[p->alias()];
      ++m.windows;
      m.written |= written;
    }
    if (!device_ && t.device().type() == c10::kXLA) device_ = t.device();
  }
  at::Tensor of(const at::Tensor& t) {
    if (t.device().type() != c10::kXLA) return t;
    Impl* p = impl_or_null(t);
    Memory* m = p ? &memories_[p->alias()] : nullptr;
    if (!m || !m->written || m->windows < 2 || t.is_conj() || t.is_neg()) return t.cpu();
    if (!m->copy.defined()) {
      int64_t count = p->alias()->type.bytes() / static_cast<int64_t>(t.element_size());
      m->copy = t.as_strided({count}, {1}, 0).cpu();
    }
    at::Tensor same = m->copy;
    if (same.scalar_type() != t.scalar_type()) same = same.view(t.scalar_type());
    return same.as_strided(t.sizes(), t.strides(), t.storage_offset());
  }
  bool shared(const at::Tensor& t) {
    Impl* p = impl_or_null(t);
    return p && memories_[p->alias()].copy.defined();
  }
  std::optional<c10::Device> device() const { return device_; }  // of the first device tensor

 private:
  struct Memory {
    int windows = 0;
    bool written = false;
    at::Tensor copy;
  };
  std::unordered_map<const Alias*, Memory> memories_;
  std::optional<c10::Device> device_;
};

// Copies that the op must leave as they are, by what their bytes were.
class Untouched {
 public:
  void add(const std::string& argument, const at::Tensor& copy) {
    all_.push_back({argument, copy, digest(copy)});
  }
  void check(const std::string& op) const {
    for (const One& o : all_)
      if (digest(o.copy) != o.before)
        fail(Code::kRuntime,
             cat(op, ": it wrote its argument '", o.argument, "', which its schema does not say: ",
                 "what it wrote to the CPU's copy cannot be put back"),
             "say it: mutates_args of torch.library.custom_op, or Tensor(a!) in the schema");
  }

 private:
  struct One {
    std::string argument;
    at::Tensor copy;
    Hash128 before;
  };
  static Hash128 digest(const at::Tensor& t) {
    return hash_bytes(t.storage().data(), t.storage().nbytes());
  }
  std::vector<One> all_;
};

// --- the call ------------------------------------------------------------------------------------

struct HostCall {
  const c10::OperatorHandle& op;
  std::string name;
  Stack args;  // as they came
  Stack copies;
  Untouched untouched;
  std::optional<c10::Device> to;  // where new results go
};

void copy_arguments(HostCall& c) {
  const auto& schema = c.op.schema().arguments();
  bool trusted = c.name.starts_with("aten::");
  Copies copies;
  for (size_t i = 0; i < c.args.size(); ++i)
    each_tensor(c.args[i], [&](const at::Tensor& t) { copies.note(t, is_written(schema[i])); });
  c.to = copies.device();
  for (size_t i = 0; i < c.args.size(); ++i) {
    const c10::IValue& v = c.args[i];
    if (v.isDevice()) {
      c.to = v.toDevice().type() == c10::kXLA ? checked_device(v.toDevice()) : v.toDevice();
      c.copies.emplace_back(c10::Device(c10::kCPU));
    } else if (v.isGenerator()) {
      c.copies.push_back(on_cpu(v.toGenerator()));
    } else {
      c.copies.push_back(mapped(v, [&](const at::Tensor& t) {
        at::Tensor copy = copies.of(t);
        bool may_write = trusted || is_written(schema[i]) || copy.is_same(t) || copies.shared(t);
        if (!may_write) c.untouched.add(schema[i].name(), copy);
        return copy;
      }));
    }
  }
}

void put_back_written(const HostCall& c) {
  const auto& schema = c.op.schema().arguments();
  for (size_t i = 0; i < c.args.size(); ++i) {
    if (!is_written(schema[i])) continue;
    std::vector<at::Tensor> to;
    each_tensor(c.args[i], [&](const at::Tensor& t) { to.push_back(t); });
    size_t next = 0;
    each_tensor(c.copies[i], [&](const at::Tensor& copy) {
      const at::Tensor& t = to[next++];
      if (!copy.is_same(t)) at::_copy_from_and_resize(copy, t);
    });
  }
}

// A result: the argument that the op wrote, or a new tensor of the device.
c10::IValue result_of(const HostCall& c, const c10::Argument& r, const c10::IValue& given) {
  if (!r.alias_info())
    return c.to ? mapped(given, [&](const at::Tensor& t) { return t.to(*c.to); }) : given;
  const auto& schema = c.op.schema().arguments();
  for (size_t i = 0; i < c.args.size(); ++i)
    if (schema[i].alias_info() && *schema[i].alias_info() == *r.alias_info()) return c.args[i];
  fail(Code::kRuntime, cat(c.name, ": its schema names no argument for a result that it writes"));
}

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  size_t n = schema.arguments().size();
  HostCall c{.op = op,
             .name = display(op.operator_name()),
             .args = {},
             .copies = {},
             .untouched = {},
             .to = {}};
  c.args.assign(stack->end() - static_cast<int64_t>(n), stack->end());
  check_namespace(c.name);
  check_putable(c.name, schema, c.args);
  probe::counter(c.name).add();
  warn_fallback(c.name);
  ReadKind kind(permanent(cat(c.name, " on the CPU")));
  copy_arguments(c);
  Stack results = c.copies;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &results);
  c.untouched.check(c.name);
  put_back_written(c);
  stack->resize(stack->size() - n);
  for (size_t i = 0; i < schema.returns().size(); ++i)
    stack->push_back(result_of(c, schema.returns()[i], results[i]));
}

}  // namespace

void cpu_fallback(const c10::OperatorHandle& op, Stack* stack) {
  converting([&] { run_on_cpu(op, stack); }, [&] { return display(op.operator_name()); });
}

}  // namespace tp::torch_room
