// Calls of compiled functions: arguments to buffers, a launch, buffers to tensors.
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "probe/probe.h"
#include "torch/argument.h"
#include "torch/errors.h"
#include "torch/lent.h"
#include "torch/runtime.h"
#include "torch/spmd.h"
#include "torch/trace.h"

namespace tp::torch_room {

using client::DataPtr;

namespace {

DataPtr argument_of(const at::Tensor& t, const ArgumentSpec& spec, int device) {
  // A copy: the plugin goes on using the bytes, and the user may change t afterwards.
  if (spec.cpu) return send(t.clone(at::MemoryFormat::Contiguous), spec.type, device);
  return buffer_of(t, device);
}

bool same_strides(const at::Tensor& t, const ArgumentSpec& spec) {
  return t.strides() == ref_of(spec.strides);
}

}  // namespace

DataPtr buffer_of(const at::Tensor& t, int device) {
  Impl& impl = impl_of(t);
  DataPtr root = computed(*impl.alias());
  if (impl.whole() && !t.is_conj() && !t.is_neg()) return root;
  exec::PlanRequest request;
  request.roots = {resolved_value(t)};
  request.uploaded = [](const ir::Node&) { return false; };
  request.device = device;
  GilRelease no_gil;
  exec::PlanPtr plan = executor().plan(std::move(request));
  return executor().sync(plan).outputs[0];
}

shard::Ref sharding_of_argument(const at::Tensor& t, int device) {
  if (!shard::any() || !impl_or_null(t)) return nullptr;
  shard::Ref known = layout_like(impl_of(t));
  return known ? known : buffer_of(t, device)->sharding();
}

namespace {
bool same_sharding(const at::Tensor& t, const ArgumentSpec& spec, int device) {
  shard::Ref now = sharding_of_argument(t, device);
  return now && spec.sharding ? shard::same(*now, *spec.sharding) : now == spec.sharding;
}
}  // namespace

bool Compiled::fits(c10::ArrayRef<at::Tensor> arguments) const {
  if (arguments.size() != recipe_.arguments.size()) return false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const ArgumentSpec& spec = recipe_.arguments[i];
    const at::Tensor& t = arguments[i];
    if (t.device().is_cpu() != spec.cpu) return false;
    if (spec.cpu ? to_dtype(t.scalar_type()) != spec.type.dtype() ||
                       t.sizes() != ref_of(spec.type.dims())
                 : !impl_or_null(t) || t.device() != recipe_.device ||
                       !(type_of(impl_of(t)) == spec.type))
      return false;
    if (!same_strides(t, spec)) return false;
  }
  for (size_t i = 0; shard::any() && i < arguments.size(); ++i)
    if (!same_sharding(arguments[i], recipe_.arguments[i], device_index(recipe_.device)))
      return false;
  return true;
}

std::string Compiled::key() const {
  return replay_->program() ? replay_->program()->key.total.hex() : std::string();
}

std::vector<at::Tensor> Compiled::results(const std::vector<at::Tensor>& arguments,
                                          const std::vector<DataPtr>& values) const {
  using Kind = OutputRecipe::Kind;
  Roots roots(values, recipe_.layouts, recipe_.device);
  std::vector<at::Tensor> out;
  for (const OutputRecipe& r : recipe_.outputs) {
    if (r.kind == Kind::kNone) {
      out.emplace_back();
    } else if (r.kind == Kind::kArgument) {
      out.push_back(arguments[r.at]);
    } else if (r.kind == Kind::kConstant) {
      out.push_back(r.constant);
    } else if (r.kind == Kind::kViewOfArgument) {
      const at::Tensor& base = arguments[r.at];
      out.push_back(as_strided(base, r, base.storage_offset() + r.offset));
    } else {
      out.push_back(roots.tensor(r));
    }
  }
  return out;
}

std::vector<at::Tensor> Compiled::call(std::vector<at::Tensor> arguments) const {
  static probe::Counter& calls = probe::counter("CompiledCall");
  calls.add();
  return guarded(
      [&] {
        int device = device_index(recipe_.device);
        std::vector<DataPtr> buffers;
        for (size_t i = 0; i < arguments.size(); ++i)
          buffers.push_back(argument_of(arguments[i], recipe_.arguments[i], device));
        Lent lent(arguments.size());
        for (uint32_t i : replay_->donors()) {
          if (recipe_.arguments[i].cpu) continue;
          Impl& impl = impl_of(arguments[i]);
          if (impl.whole()) lent.take(i, alias_ptr(impl), buffers[i]);
        }
        std::vector<DataPtr> values = launch(*replay_, buffers, lent, recipe_.name);
        for (auto [argument, value] : recipe_.updates) {
          const at::Tensor& t = arguments[argument];
          if (recipe_.arguments[argument].cpu) {
            t.copy_(make_device_tensor(values[value], {}, recipe_.device));
            continue;
          }
          Impl& impl = impl_of(t);
          write_data(impl, values[value]);
          lent.settled(&*impl.alias());
          if (!t.is_inference()) impl.bump_version();
        }
        return results(arguments, values);
      },
      [&] { return cat("calling compiled ", recipe_.name); });
}

}  // namespace tp::torch_room
