// What PyTorch asks of a device besides kernels: device guard, hooks, generator, the keys without
// fallthrough, and the CPU fallback.
#include <ATen/Context.h>
#include <ATen/detail/XLAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <mutex>
#include <unordered_set>

#include "base/flags.h"
#include "base/text.h"
#include "client/registry.h"
#include "probe/probe.h"
#include "torch/autograd_threads.h"
#include "torch/cuts.h"
#include "torch/errors.h"
#include "torch/host_op.h"
#include "torch/kernels.h"
#include "torch/random.h"
#include "torch/runtime.h"

namespace tp::torch_room {
namespace {

// One stream a device, in program order: PJRT orders programs by the buffers they use.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  static thread_local c10::DeviceIndex current;
  c10::DeviceType type() const override { return c10::kXLA; }
  c10::Device exchangeDevice(c10::Device d) const override {
    c10::Device old = getDevice();
    setDevice(d);
    return old;
  }
  c10::Device getDevice() const override { return {c10::kXLA, current}; }
  void setDevice(c10::Device d) const override {
    TORCH_CHECK(d.type() == c10::kXLA, "expected a device of type xla, found ", d);
    uncheckedSetDevice(d);
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    current = std::max<c10::DeviceIndex>(d.index(), 0);
    note_device_thread(current);
  }
  c10::Stream getStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::DEFAULT, d);
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return getStream(d); }
  c10::Stream exchangeStream(c10::Stream s) const override { return getStream(s.device()); }
  // Autograd starts as many threads as there are devices at its first backward, which may come
  // before there is a client: then as many as there may be.
  c10::DeviceIndex deviceCount() const noexcept override {
    constexpr c10::DeviceIndex kMost = 16;  // of a host, where a plugin has not been asked
    try {
      if (client::client_exists())
        return static_cast<c10::DeviceIndex>(client::client().devices().size());
      std::string name = flag_text(Flag::kDevice);
      return name.empty() || name == "CPU" ? static_cast<c10::DeviceIndex>(std::max<int64_t>(
                                                 1, flag_int(Flag::kCpuDeviceCount)))
                                           : kMost;
    } catch (...) {
      return 0;
    }
  }
  void synchronizeDevice(const c10::DeviceIndex) const override { wait_all(); }
};
thread_local c10::DeviceIndex Guard::current = 0;

C10_REGISTER_GUARD_IMPL(XLA, Guard)

}  // namespace

struct Hooks final : at::XLAHooksInterface {
  void init() const override {}
  bool hasXLA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  std::string showConfig() const override { return "torch_pjrt"; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return new_generator(); }
  c10::DeviceIndex getCurrentDevice() const override { return Guard::current; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return client::client_exists(); }
  c10::DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
  bool isPinnedPtr(const void*) const override { return false; }
};

namespace {

// One warning for each (op, user's line).
void warn_fallback(const std::string& op) {
  static std::mutex mu;
  static std::unordered_set<std::string> seen;
  std::string where = user_frame();
  {
    std::lock_guard lock(mu);
    if (!seen.insert(op + "@" + where).second) return;
  }
  TORCH_WARN("torch_pjrt: ", op,
             " has no lowering for this call and runs on the CPU, which cuts the graph",
             where.empty() ? "" : " (at " + where + ")", ". Counter: ", op);
}

// Swaps generators of device xla for a CPU one seeded from them, so that the same seed draws the
// same numbers.
void swap_generators(std::vector<c10::IValue>* stack, size_t args) {
  for (size_t i = stack->size() - args; i < stack->size(); ++i) {
    c10::IValue& v = (*stack)[i];
    if (!v.isGenerator()) continue;
    at::Generator g = v.toGenerator();
    if (!g.defined() || g.device().type() != c10::kXLA) continue;
    auto [seed, offset] = next_random(g);
    at::Generator cpu = at::globalContext().defaultGenerator(c10::kCPU).clone();
    cpu.set_current_seed(static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15ull +
                         static_cast<uint64_t>(offset));
    v = cpu;
  }
}

}  // namespace

int current_device() { return Guard::current; }
int exchange_device(int index) {
  int old = Guard::current;
  Guard::current = static_cast<c10::DeviceIndex>(index);
  return old;
}

void cpu_fallback(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack) {
  const auto& n = op.operator_name();
  std::string name = n.overload_name.empty() ? n.name : cat(n.name, ".", n.overload_name);
  probe::counter(name).add();
  warn_fallback(name);
  swap_generators(stack, op.schema().arguments().size());
  ReadKind kind(permanent(cat(name, " on the CPU")));
  // A view that is silently copied loses writes: better no view than a wrong one.
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

namespace {

void boxed_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!record_host_op(op, stack)) cpu_fallback(op, stack);
}

std::vector<torch::Library>& libraries() {
  static auto* v = new std::vector<torch::Library>;
  return *v;
}

torch::Library& library(const char* ns, c10::DispatchKey key, uint32_t line) {
  libraries().emplace_back(torch::Library::IMPL, ns, key, __FILE__, line);
  return libraries().back();
}

}  // namespace

void register_autocast(torch::Library& m);

void register_all() {
  libraries().reserve(8);
  torch::Library& aten = library("aten", c10::DispatchKey::XLA, __LINE__);
  register_factories(aten);
  register_storages(aten);
  register_views(aten);
  register_rows(aten);
  register_host_check(aten);
  register_composites(aten);
  register_composites(library("aten", c10::DispatchKey::AutogradXLA, __LINE__));
  library("_", c10::DispatchKey::XLA, __LINE__)
      .fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
  library("_", c10::DispatchKey::AutocastXLA, __LINE__)
      .fallback(torch::CppFunction::makeFallthrough());
  register_autocast(library("aten", c10::DispatchKey::AutocastXLA, __LINE__));
  // _copy_from honours the lazy bits itself; without these its fallback clones without end.
  // _has_compatible_shallow_copy_type looks at no values.
  for (auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    torch::Library& bits = library("aten", key, __LINE__);
    for (const char* name :
         {"_copy_from", "_copy_from_and_resize", "_has_compatible_shallow_copy_type"})
      bits.impl(name, torch::CppFunction::makeFallthrough());
  }
}

}  // namespace tp::torch_room

// at::getXLAHooks() looks for exactly this key; any other is silently ignored.
namespace at {
C10_REGISTER_CLASS(XLAHooksRegistry, torch_xla::detail::XLAHooks, ::tp::torch_room::Hooks)
}
