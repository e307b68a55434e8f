// What PyTorch asks of a device besides kernels: device guard, hooks, generator, and the keys
// without fallthrough.
#include <ATen/Context.h>

#include <atomic>

#include "base/flags.h"
#include "base/text.h"
#include "client/registry.h"
#include "torch/asserts.h"
#include "torch/autograd_threads.h"
#include "torch/checks.h"
#include "torch/compat.h"
#include "torch/errors.h"
#include "torch/events.h"
#include "torch/host_op.h"
#include "torch/kernels.h"
#include "torch/layouts.h"
#include "torch/random.h"
#include "torch/runtime.h"
#include "torch/schema.h"
#include "torch/value_sizes.h"

namespace tp::torch_room {
namespace {

// One stream a device, in program order: PJRT orders programs by the buffers they use.
struct Guard final : EventGuard {
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
    if (d.index() >= promised) check_device(d.index());
    uncheckedSetDevice(d);
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    current = std::max<c10::DeviceIndex>(d.index(), 0);
    note_device_thread(current);
  }
  // Autograd starts as many threads as there are devices at its first backward, which may come
  // before there is a client: then as many as there may be.
  c10::DeviceIndex deviceCount() const noexcept override {
    return autograd_may_start_threads() ? most_devices() : 0;
  }
  static c10::DeviceIndex most_devices() noexcept {
    c10::DeviceIndex n = 0;
    try {
      n = count();
    } catch (...) {
    }
    if (n > promised) promised = n;
    return n;
  }
  void synchronizeDevice(const c10::DeviceIndex) const override { wait_all(); }

 private:
  static c10::DeviceIndex count() {
    constexpr c10::DeviceIndex kMost = 16;  // of a host, where a plugin has not been asked
    if (client::client_exists())
      return static_cast<c10::DeviceIndex>(client::client().devices().size());
    int promised = client::promised_devices();
    return promised ? static_cast<c10::DeviceIndex>(promised) : kMost;
  }
  // The most that deviceCount() has said: autograd's threads, one a device, may still choose these.
  static std::atomic<c10::DeviceIndex> promised;
};
thread_local c10::DeviceIndex Guard::current = 0;
std::atomic<c10::DeviceIndex> Guard::promised = 0;

C10_REGISTER_GUARD_IMPL(XLA, Guard)

}  // namespace

struct Hooks final : at::XLAHooksInterface {
  void init() const override {}
  bool hasXLA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  std::string showConfig() const override { return "torch_pjrt"; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    check_device(index);
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    if (index < 0) index = Guard::current;
    check_device(index);
    return new_generator(index);
  }
  c10::DeviceIndex getCurrentDevice() const override { return Guard::current; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return client::client_exists(); }
  c10::DeviceIndex deviceCount() const override { return Guard::most_devices(); }
  bool isPinnedPtr(const void*) const override { return false; }
  at::Allocator* getPinnedMemoryAllocator() const override {
    TORCH_CHECK(false,
                "device xla has no pinned host memory: a plugin copies from ordinary memory.\n"
                "  try: leave pin_memory out (DataLoader: pin_memory=False), .to(\"xla\") is "
                "asynchronous all the same");
  }
};

int current_device() { return Guard::current; }
int exchange_device(int index) {
  check_device(index);
  int old = Guard::current;
  Guard::current = static_cast<c10::DeviceIndex>(index);
  return old;
}

namespace {

void boxed_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  bool recorded = converting([&] { return record_host_op(op, stack); },
                             [&] { return display(op.operator_name()); });
  if (!recorded) cpu_fallback(op, stack);
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
  libraries().reserve(16);
  torch::Library& aten = library("aten", c10::DispatchKey::XLA, __LINE__);
  register_factories(aten);
  register_storages(aten);
  register_views(aten);
  register_rows(aten);
  register_host_check(aten);
  register_asserts(aten);
  register_composites(aten);
  torch::Library& autograd = library("aten", c10::DispatchKey::AutogradXLA, __LINE__);
  register_composites(autograd);
  register_value_sizes(aten);
  register_events(aten);
  register_layouts(aten, autograd);
  register_beside_layouts(library("aten", c10::DispatchKey::CPU, __LINE__),
                          library("aten", c10::DispatchKey::QuantizedXLA, __LINE__));
  for (auto key : {c10::DispatchKey::SparseXLA, c10::DispatchKey::SparseCsrXLA,
                   c10::DispatchKey::NestedTensorXLA, c10::DispatchKey::QuantizedXLA})
    register_foreign_layout(library("_", key, __LINE__), key);
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

TP_REGISTER_XLA_HOOKS(::tp::torch_room::Hooks)
