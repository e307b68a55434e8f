#include "torch/trace.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "torch/argument.h"
#include "torch/errors.h"
#include "torch/kernels.h"
#include "torch/random.h"
#include "torch/runtime.h"
#include "torch/spmd.h"

namespace tp::torch_room {

constinit thread_local Tracing* t_trace = nullptr;

namespace {

// What a stand-in's leaf has in the place of a buffer: an identity, and no bytes.
class Placeholder final : public client::Data {
 public:
  using Data::Data;
  bool ready() const override { return true; }
  bool deleted() const override { return false; }
  void await() const override { fail(Code::kInternal, "a traced argument has no bytes"); }
  bool computed() const override { return false; }
  const void* host_pointer() const override { return nullptr; }
  std::shared_ptr<const client::Completion> completion() const override { return nullptr; }
};

c10::Device device_of(const std::vector<at::Tensor>& arguments) {
  for (const at::Tensor& t : arguments)
    if (t.device().is_xla()) return t.device();
  return {c10::kXLA, static_cast<c10::DeviceIndex>(current_device())};
}

ArgumentSpec spec_of(const at::Tensor& t) {
  return {.type = ir::make_type(to_dtype(t.scalar_type()), span_of(t.sizes())),
          .strides = Dims(dims_of(t.strides())),
          .cpu = t.device().is_cpu()};
}

}  // namespace

ir::NodePtr stand_in_leaf(ir::Type type, int device, shard::Ref sharding) {
  return ir::Node::make_data(type,
                             std::make_shared<Placeholder>(type, device, std::move(sharding)));
}

Trace::Trace(const std::vector<at::Tensor>& arguments, std::string name)
    : name_(std::move(name)), device_(device_of(arguments)) {
  if (t_trace) fail(Code::kRuntime, cat("tracing ", name_, ": this thread traces already"));
  for (const at::Tensor& t : arguments) {
    specs_.push_back(spec_of(t));
    if (!t.device().is_cpu() && (!impl_or_null(t) || t.device() != device_))
      fail(Code::kRuntime, cat("tracing ", name_, ": expected tensors of ", device_.str(),
                               " or the CPU, found one of ", t.device().str()));
  }
  for (size_t i = 0; i < arguments.size(); ++i)
    specs_[i].sharding = sharding_of_argument(arguments[i], device_index(device_));
  first_offset_ = static_cast<int64_t>(random_offset());
  t_trace = this;
  for (size_t i = 0; i < arguments.size(); ++i) {
    ir::Type type = specs_[i].type;
    ir::NodePtr leaf = stand_in_leaf(type, device_index(device_), specs_[i].sharding);
    roles_.arguments[leaf.get()] = static_cast<uint32_t>(i);
    stand_ins_.push_back(
        make_tensor({leaf, 0}, dense_strides(*arguments[i].unsafeGetTensorImpl()), device_));
    aliases_.push_back(alias_ptr(impl_of(stand_ins_.back())));
    leaves_.push_back(std::move(leaf));
  }
}

Trace::~Trace() { end(); }

void Trace::end() {
  if (!std::exchange(active_, false)) return;
  t_trace = nullptr;
  roles_.draws = static_cast<int64_t>(random_offset()) - first_offset_;
  set_random_offset(static_cast<uint64_t>(first_offset_));
}

void Trace::drew(const ir::NodePtr& seed, const ir::NodePtr& offset, int64_t at) {
  roles_.drew(seed, offset, at - first_offset_);
}

void Trace::refuse(std::string why) {
  refused_ = std::move(why);
  fail(Code::kRuntime, cat("tracing ", name_, ": ", refused_));
}

int Trace::argument_of(const Alias& a) const {
  for (size_t i = 0; i < aliases_.size(); ++i)
    if (aliases_[i].get() == &a) return static_cast<int>(i);
  return -1;
}

OutputRecipe Trace::recipe_of(const at::Tensor& t, exec::PlanRequest& request,
                              Compiled::Recipe& recipe, std::vector<const Alias*>& groups) {
  using Kind = OutputRecipe::Kind;
  OutputRecipe out;
  if (!t.defined()) return out;
  Impl* impl = impl_or_null(t);
  if (!impl || !impl->alias()->traced) {
    out.kind = Kind::kConstant;
    out.constant = t;
    return out;
  }
  for (size_t i = 0; i < stand_ins_.size(); ++i)
    if (t.is_same(stand_ins_[i])) {
      out.kind = Kind::kArgument;
      out.at = static_cast<uint32_t>(i);
      return out;
    }
  out.sizes = dims_of(t.sizes());
  out.strides = dims_of(t.strides());
  out.offset = t.storage_offset();
  out.dtype = t.scalar_type();
  Alias& a = *impl->alias();
  bool lazy_bits = t.is_conj() || t.is_neg();
  int argument = argument_of(a);
  // A window of an argument that has gaps itself would lie elsewhere in the argument's memory.
  bool same_layout = argument >= 0 && !specs_[static_cast<size_t>(argument)].cpu &&
                     specs_[static_cast<size_t>(argument)].strides ==
                         dims_of(stand_ins_[static_cast<size_t>(argument)].strides());
  if (argument >= 0 && same_layout && !lazy_bits) {
    out.kind = Kind::kViewOfArgument;
    out.at = static_cast<uint32_t>(argument);
    return out;
  }
  out.kind = Kind::kRoot;
  if (argument >= 0 || lazy_bits) {  // a value of its own
    out.at = static_cast<uint32_t>(request.roots.size());
    request.roots.push_back(resolved_value(t));
    request.previous.push_back(nullptr);
    auto strides = dense_strides(*impl);
    recipe.layouts.push_back(std::make_unique<Dims>(std::span<const int64_t>(strides)));
    groups.push_back(nullptr);
    out.same = true;
    return out;
  }
  auto it = std::find(groups.begin(), groups.end(), &a);
  out.at = static_cast<uint32_t>(it - groups.begin());
  if (it != groups.end()) return out;
  groups.push_back(&a);
  request.roots.push_back(root_value(a));
  request.previous.push_back(nullptr);
  recipe.layouts.push_back(a.strides ? std::make_unique<Dims>(*a.strides) : nullptr);
  return out;
}

std::shared_ptr<Compiled> Trace::finish(const std::vector<at::Tensor>& outputs) {
  Compiled::Recipe recipe;
  exec::PlanRequest request;
  std::vector<const Alias*> groups;
  for (size_t i = 0; i < stand_ins_.size(); ++i) {
    const Alias& a = *aliases_[i];
    const Impl& impl = impl_of(stand_ins_[i]);
    if (impl.alias() != &a || !(type_of(impl) == specs_[i].type))
      refuse(cat("argument ", i, " changes its size or memory"));
    ir::Value now = root_value(*aliases_[i]);
    if (now.node == leaves_[i]) continue;
    recipe.updates.emplace_back(i, request.roots.size());
    request.roots.push_back(std::move(now));
    request.previous.push_back(exec::identity(*leaves_[i]));
    auto& stand_in = static_cast<const client::Data&>(*leaves_[i]->payload());
    request.layouts.pins.push_back({true, stand_in.sharding()});
    recipe.layouts.push_back(nullptr);
    groups.push_back(&a);
  }
  for (const at::Tensor& t : outputs)
    recipe.outputs.push_back(recipe_of(t, request, recipe, groups));
  end();
  recipe.arguments = specs_;
  recipe.device = device_;
  recipe.name = name_;
  request.uploaded = [](const ir::Node&) { return false; };
  request.kept = [](const void*) { return false; };
  request.device = device_index(device_);
  request.force_data = true;
  request.where = name_;
  GilRelease no_gil;
  return guarded(
      [&] {
        exec::Executor& e = executor();
        auto replay = std::make_unique<exec::Replay>(e, e.plan(std::move(request)), roles_);
        return std::make_shared<Compiled>(std::move(replay), std::move(recipe));
      },
      [&] { return cat("compiling ", name_); });
}

}  // namespace tp::torch_room
