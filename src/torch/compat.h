// What the torch room takes of PyTorch's internals that no release promises to keep, one function
// each, with what is assumed of it. Known to hold for PyTorch 2.13.0, 2.14.1 and 2.15.0; a
// release that differs gets its branch here, by TORCH_VERSION_MINOR. The table of its names in
// Python is torch_pjrt/_compat.py. No state of its own: any thread, but where said.
#pragma once
#include <ATen/SequenceNumber.h>
#include <ATen/ThreadLocalPythonObjects.h>
#include <ATen/detail/XLAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/headeronly/version.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 13
#error "torch_pjrt is for PyTorch 2.13 and newer: pip install torch==2.13.0"
#endif

namespace tp::torch_room::compat {

// Arguments that a release calls otherwise than the rows of the op table do, which have 2.13's
// names.
struct Renamed {
  std::string_view op, here, in_row;
};
inline constexpr Renamed kRenamed[] = {
    {"aten::_cdist_backward", "grad_output", "grad"},  // 2.14 and newer
    {"aten::_pdist_backward", "grad_output", "grad"},
};
inline std::string name_in_row(std::string_view op, const std::string& argument) {
  for (const Renamed& r : kRenamed)
    if (r.op == op && r.here == argument) return std::string(r.in_row);
  return argument;
}

// Fractional pooling of windows of no values: -inf before, refused by these kernels.
inline constexpr bool kRefusesEmptyWindows = TORCH_VERSION_MINOR >= 15;

// The number that autograd gives to this thread's next node; it counts up by one a node.
inline uint64_t next_sequence() { return at::sequence_number::peek(); }

// Whether a device of another kind than `ours` is there: autograd's threads are counted over all
// kinds, and with another kind the engine starts them at its first use.
inline bool other_devices(c10::DeviceType ours) {
  for (const auto& slot : c10::impl::device_guard_impl_registry) {
    const auto* guard = slot.load();
    if (!guard || guard->type() == at::kCPU || guard->type() == at::kMeta ||
        guard->type() == at::kLazy || guard->type() == ours)
      continue;
    if (guard->deviceCount() > 0) return true;
  }
  return false;
}

// Protected fields of the engine, reached as C++ allows it.
struct EngineFields : torch::autograd::Engine {
  static constexpr auto kQueues = &EngineFields::device_ready_queues_;
  static constexpr auto kPool = &EngineFields::thread_pool_shared_;
};

// What Engine::start_device_threads does, in an engine that has been started without devices: one
// thread and queue a device. One caller at a time.
inline void start_device_threads(c10::DeviceType type) {
  torch::autograd::Engine& engine = torch::autograd::Engine::get_default_engine();
  auto& queues = engine.*EngineFields::kQueues;
  if (!(engine.*EngineFields::kPool) || !queues.empty()) return;  // it will start them itself
  int count = c10::impl::getDeviceGuardImpl(type)->deviceCount();
  for (int i = 0; i < count; ++i) queues.push_back(std::make_shared<torch::autograd::ReadyQueue>());
  for (int i = 0; i < count; ++i)
    std::thread([&engine, i, queue = queues[i]] { engine.thread_init(i, queue); }).detach();
}

// Marks by name in this thread that at::ThreadLocalState carries to the threads that work for it
// (a backward's). They hold no Python object: being there says all.
inline bool has_mark(const char* name) {
  return at::impl::ThreadLocalPythonObjects::contains(name);
}
inline void set_mark(const char* name) {
  at::impl::ThreadLocalPythonObjects::set(name,
                                          std::make_shared<c10::SafePyObject>(nullptr, nullptr));
}
inline void erase_mark(const char* name) { at::impl::ThreadLocalPythonObjects::erase(name); }

}  // namespace tp::torch_room::compat

// In the global namespace. at::getXLAHooks() looks for exactly this key; any other is ignored.
#define TP_REGISTER_XLA_HOOKS(type)                                       \
  namespace at {                                                          \
  C10_REGISTER_CLASS(XLAHooksRegistry, torch_xla::detail::XLAHooks, type) \
  }
