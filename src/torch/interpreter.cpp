#include "torch/interpreter.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/DefaultDtype.h>

#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "base/lru.h"
#include "base/text.h"
#include "client/registry.h"
#include "ir/location.h"
#include "ops/core/row.h"
#include "probe/probe.h"
#include "torch/call_site.h"
#include "torch/host_op.h"
#include "torch/runtime.h"
#include "torch/schema.h"
#include "torch/tensor.h"
#include "torch/view_memory.h"

namespace tp::torch_room {
namespace {

using client::DataPtr;
using ir::Node;
using ir::Role;
using ir::Value;

const ir::Symbol kSelf = ir::symbol("self"), kSrc = ir::symbol("src"),
                 kBase = ir::symbol("base_stride"), kSize = ir::symbol("size"),
                 kStride = ir::symbol("stride"), kOffset = ir::symbol("storage_offset"),
                 kDtype = ir::symbol("dtype"), kNumel = ir::symbol("numel"),
                 kDefaultFloat = ir::symbol(ops::kDefaultFloat);

// --- steps ---------------------------------------------------------------------------------------

// What a node is to the host; decoded once for all nodes of one op and equal attributes.
struct Step {
  enum class Kind : uint8_t { kCall, kView, kScatter, kCast, kExpand, kResize, kProgram };
  Kind kind = Kind::kProgram;
  std::optional<CallSite> call;  // kCall
  std::vector<size_t> writes;    // arguments that the kernel writes (Row::writes)
  bool contiguous = false;       // the kernel counts on it, see wants_contiguous()
};

// Kernels that only other ops of PyTorch call count on what those do to operands (group norm's
// gradient is made contiguous by autograd's formula). There is no node for that: values of a graph
// have no strides.
bool wants_contiguous(std::string_view name) {
  std::string_view base = name.substr(name.find("::") + 2);
  return base.starts_with('_') || base.starts_with("native_") || base.starts_with("convolution") ||
         base.find("_backward") != base.npos;
}

Step::Kind kind_of_own(std::string_view name) {
  if (name == "torch_pjrt::view") return Step::Kind::kView;
  if (name == "torch_pjrt::view_scatter") return Step::Kind::kScatter;
  if (name == "torch_pjrt::cast") return Step::Kind::kCast;
  if (name == "torch_pjrt::expand") return Step::Kind::kExpand;
  if (name == "torch_pjrt::resize") return Step::Kind::kResize;
  return Step::Kind::kProgram;
}

bool takes_generator(const c10::FunctionSchema& s) {
  for (const c10::Argument& a : s.arguments())
    if (a.name() == "generator") return true;
  return false;
}

Step decode_step(const Node& n) {
  Step s;
  const ops::Row* row = ops::row_of(n.kind());
  if (!row || row->special == ops::Special::kRandom) return s;
  std::string_view name = row->name;
  if (!name.starts_with("aten::")) {
    s.kind = kind_of_own(name);
    return s;
  }
  auto op = c10::Dispatcher::singleton().findSchema(parse_name(name));
  if (!op || takes_generator(op->schema()) ||
      !op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))
    return s;
  s.call = decode_call(name, n.attrs());
  s.writes = written_arguments(name, op->schema());
  s.contiguous = wants_contiguous(name);
  s.kind = Step::Kind::kCall;
  return s;
}

// By op and attributes: node_hash() has the shapes too, which change where graphs do not come back.
Hash128 step_key(const Node& n) {
  auto words = n.attrs().words();
  return mix(hash_bytes(words.data(), words.size_bytes()), reinterpret_cast<uintptr_t>(&n.kind()));
}

std::shared_ptr<const Step> step_of(const Node& n) {
  constexpr size_t kSteps = 8192;
  static std::mutex mu;
  static auto* steps = new LruMap<Hash128, std::shared_ptr<const Step>>(kSteps);
  Hash128 key = step_key(n);
  {
    std::lock_guard lock(mu);
    if (auto* hit = steps->get(key)) return *hit;
  }
  auto made = std::make_shared<Step>(decode_step(n));
  std::lock_guard lock(mu);
  return *steps->put(key, std::move(made));
}

// Factories read the default dtype of now; it may have been another one when they were recorded.
bool default_dtype_fits(const Node& n) {
  ir::Attr recorded;
  ir::DType then = n.attrs().find(kDefaultFloat, &recorded) ? recorded.dtype() : ir::DType::kF32;
  return to_dtype(c10::get_default_dtype_as_scalartype()) == then;
}

// --- values --------------------------------------------------------------------------------------

at::Scalar to_torch(const ir::Scalar& s) {
  switch (s.kind) {
    case ir::Scalar::Kind::kBool:
      return at::Scalar(s.integer != 0);
    case ir::Scalar::Kind::kInt:
      return at::Scalar(s.integer);
    case ir::Scalar::Kind::kFloat:
      return at::Scalar(s.re);
    case ir::Scalar::Kind::kComplex:
      return at::Scalar(c10::complex<double>(s.re, s.im));
  }
  return {};
}

at::Tensor number_tensor(const Node& n) {
  auto options = at::TensorOptions(to_scalar_type(n.types()[0].dtype())).device(at::kCPU);
  at::Tensor t = at::scalar_tensor(to_torch(n.scalar()), options);
  if (&n.kind() == &ir::number_kind(true)) t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

at::Tensor fill_tensor(const Node& n) {
  ir::Type t = n.types()[0];
  auto options = at::TensorOptions(to_scalar_type(t.dtype())).device(at::kCPU);
  return at::full(ref_of(t.dims()), to_torch(n.scalar()), options);
}

bool is_of(const at::Tensor& t, ir::Type type) {
  return t.defined() && t.device().is_cpu() && t.layout() == at::kStrided &&
         t.sizes() == ref_of(type.dims()) && t.scalar_type() == to_scalar_type(type.dtype());
}

// One run. Tensors are kept as long as somebody still reads them.
class Run {
 public:
  explicit Run(const exec::HostWork& work) : work_(work) {
    for (const Node* n : work.order)
      for (const Value& v : n->operands()) ++slots_[v.node.get()].uses;
    for (const Value& v : work.wanted) ++slots_[v.node.get()].uses;
    for (const auto& [v, data] : work.given) put(v, input(data));
  }

  std::vector<DataPtr> run() {
    for (size_t i = 0; i < work_.order.size(); ++i) {
      try {
        compute(*work_.order[i]);
      } catch (const c10::Error& e) {
        throw Error(code_of(e), e.what_without_backtrace()).raised_by(static_cast<int64_t>(i));
      } catch (const Error& e) {
        if (e.raised_by() < 0) throw;
        throw Error(e).raised_by(static_cast<int64_t>(i));
      }
    }
    std::vector<DataPtr> out;
    for (const Value& v : work_.wanted) out.push_back(upload(v));
    return out;
  }

 private:
  struct Slot {
    c10::SmallVector<at::Tensor, 1> values;
    c10::SmallVector<DataPtr, 1> data;  // of what went up as it is, or came from there
    size_t uses = 0;
  };

  at::Tensor input(const DataPtr& data) {
    data->await();
    at::Tensor t = to_host(data);
    borrowed_.insert(t.storage().unsafeGetStorageImpl());
    return t;
  }

  void put(const Value& v, at::Tensor t, DataPtr data = nullptr) {
    Slot& s = slots_[v.node.get()];
    if (s.values.size() <= v.index) s.values.resize(v.index + 1), s.data.resize(v.index + 1);
    s.values[v.index] = std::move(t);
    s.data[v.index] = std::move(data);
  }

  // Of a number once a kernel wants it as a tensor: most are arguments that are numbers.
  const at::Tensor& get(const Value& v) {
    Slot& s = slots_.at(v.node.get());
    if (s.values.empty() && v.node->role() == Role::kNumber) put(v, number_tensor(*v.node));
    return s.values[v.index];
  }

  at::Scalar number(const Value& v) {
    return v.node->role() == Role::kNumber ? to_torch(v.node->scalar()) : get(v).item();
  }

  void compute(const Node& n) {
    switch (n.role()) {
      case Role::kData: {
        auto data = std::static_pointer_cast<client::Data>(n.payload());
        return put({NodePtrOf(n), 0}, input(data), data);
      }
      case Role::kNumber:
        return;
      case Role::kFill:
        return put({NodePtrOf(n), 0}, fill_tensor(n));
      case Role::kInterior:
        break;
    }
    std::vector<at::Tensor> results;
    if (!by_kernel(n, results)) results = by_program(n);
    for (size_t i = 0; i < results.size(); ++i)
      put({NodePtrOf(n), static_cast<uint32_t>(i)}, std::move(results[i]));
    for (const Value& v : n.operands()) let_go(v);
  }

  static ir::NodePtr NodePtrOf(const Node& n) { return ir::NodePtr::share(const_cast<Node*>(&n)); }

  void let_go(const Value& v) {
    Slot& s = slots_.at(v.node.get());
    if (--s.uses == 0) s.values.clear(), s.data.clear();
  }

  // False where the host has no kernel for these types after all.
  bool by_kernel(const Node& n, std::vector<at::Tensor>& to) {
    auto step = step_of(n);
    if (step->kind == Step::Kind::kProgram || !default_dtype_fits(n)) return false;
    if (step->kind == Step::Kind::kCall) {
      try {
        to = call(n, *step);
      } catch (const c10::NotImplementedError&) {
        return false;
      }
    } else {
      to.push_back(move(n, step->kind));
    }
    if (to.size() != n.types().size()) return false;
    for (size_t i = 0; i < to.size(); ++i)
      if (n.types()[i] && !is_of(to[i], n.types()[i])) return false;
    return true;
  }

  std::vector<at::Tensor> call(const Node& n, const Step& s) {
    auto operand = [&](int64_t i) -> const Value& { return n.operands()[static_cast<size_t>(i)]; };
    Stack stack = s.call->stack(
        [&](int64_t i) {
          const at::Tensor& t = get(operand(i));
          return s.contiguous ? t.contiguous() : t;
        },
        [&](int64_t i) { return number(operand(i)); });
    std::vector<at::Tensor> written;
    for (size_t w : s.writes) {
      if (stack[w].isTensor() && stack[w].toTensor().defined())
        stack[w] = stack[w].toTensor().clone();
      written.push_back(stack[w].isTensor() ? stack[w].toTensor() : at::Tensor());
    }
    call_on_cpu(s.call->op, &stack);
    std::vector<at::Tensor> out = tensors_of(stack);
    check_results(*s.call, out);
    for (at::Tensor& t : out)
      if (t.defined() && (t.is_conj() || t.is_neg())) t = t.resolve_conj().resolve_neg();
    for (at::Tensor& t : written) out.push_back(std::move(t));
    return out;
  }

  at::Tensor move(const Node& n, Step::Kind kind) {
    const at::Tensor& self = get(n.operands()[0]);
    ir::AttrsView a = n.attrs();
    switch (kind) {
      case Step::Kind::kCast:
        return self.to(to_scalar_type(n.types()[0].dtype()));
      case Step::Kind::kExpand:
        return self.expand(ref_of(n.types()[0].dims()));
      case Step::Kind::kResize:
        return resized_memory(self, attr(a, kBase).ints(), attr(a, kNumel).integer());
      default:
        break;
    }
    Window w{attr(a, kBase).ints(), attr(a, kSize).ints(), attr(a, kStride).ints(),
             attr(a, kOffset).integer(), to_scalar_type(attr(a, kDtype).dtype())};
    if (kind == Step::Kind::kView) return read_window(self, w);
    return write_window(self, get(n.operands()[1]), w, is_free(n.operands()[0]));
  }

  static ir::Attr attr(ir::AttrsView a, ir::Symbol name) {
    ir::Attr found;
    check(a.find(name, &found), "a view's node has all of its attributes");
    return found;
  }

  // May its memory be written: does nobody else read it, now or later?
  bool is_free(const Value& v) const {
    const Slot& s = slots_.at(v.node.get());
    const at::Tensor& t = s.values[v.index];
    return s.uses == 1 && t.use_count() == 1 && t.storage().use_count() == 1 &&
           !borrowed_.contains(t.storage().unsafeGetStorageImpl());
  }

  // --- programs of one op

  std::vector<at::Tensor> by_program(const Node& n) {
    static probe::Counter& programs = probe::counter("InterpretedByProgram");
    programs.add();
    std::vector<Value> operands;
    for (const Value& v : n.operands()) operands.push_back(leaf(v));
    ir::NodePtr one = n.with_operands(operands);
    exec::PlanRequest r;
    std::vector<uint32_t> which;
    for (uint32_t i = 0; i < n.types().size(); ++i) {
      if (!n.types()[i]) continue;
      which.push_back(i);
      r.roots.push_back({one, i});
    }
    std::vector<at::Tensor> out(n.types().size());
    if (which.size() == 1) {
      if (DataPtr data = executor().run_known(r.roots[0], work_.device))
        return out[which[0]] = input(data), out;
    }
    r.device = work_.device;
    r.straight = r.part = true;
    r.where = ir::line_text(n.location());
    r.uploaded = [](const Node&) { return true; };
    exec::SyncResult result = executor().sync(executor().plan(std::move(r)));
    for (size_t i = 0; i < which.size(); ++i) out[which[i]] = input(result.outputs[i]);
    return out;
  }

  // A value as an operand of a program.
  Value leaf(const Value& v) {
    if (v.node->role() == Role::kNumber) return v;
    return {Node::make_data(v.type(), upload(v)), 0};
  }

  // A value as a buffer. Nothing else of this run, and none of its inputs, may share its memory:
  // a later launch may overwrite it.
  DataPtr upload(const Value& v) {
    const at::Tensor& made = get(v);
    Slot& s = slots_.at(v.node.get());
    if (s.data[v.index]) return s.data[v.index];
    at::Tensor t = made.contiguous();
    const c10::StorageImpl* memory = t.storage().unsafeGetStorageImpl();
    bool own = t.storage_offset() == 0 && t.nbytes() == t.storage().nbytes() &&
               !borrowed_.contains(memory);
    if (!own) t = t.clone(at::MemoryFormat::Contiguous);
    borrowed_.insert(t.storage().unsafeGetStorageImpl());
    kept_.push_back(t);  // no other tensor of this run takes its address
    return s.data[v.index] = send(t, v.type(), work_.device);
  }

  const exec::HostWork& work_;
  std::unordered_map<const Node*, Slot> slots_;
  std::unordered_set<const c10::StorageImpl*> borrowed_;  // memory that is not this run's alone
  std::vector<at::Tensor> kept_;
};

class HostInterpreter final : public exec::Interpreter {
 public:
  bool allowed() override {
    static const bool on_host = client::client().capabilities().has(Fact::kHostMemory);
    return on_host && !at::globalContext().deterministicAlgorithms();
  }
  bool calls_back() override { return client_calls_back(); }
  bool has_kernel(const Node& n) override {
    return step_of(n)->kind != Step::Kind::kProgram && default_dtype_fits(n);
  }
  std::vector<DataPtr> run(const exec::HostWork& work) override {
    at::internal::lazy_init_num_threads();
    KernelsOnly guard;
    return Run(work).run();
  }
};

}  // namespace

exec::Interpreter& host_interpreter() {
  static auto* i = new HostInterpreter;
  return *i;
}

}  // namespace tp::torch_room
