// Syncs and reads: where pending values become buffers and buffers become numbers. Callers may hold
// the GIL; it is released around everything that can block. Any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "exec/executor.h"
#include "torch/tensor.h"

namespace tp::torch_room {

exec::Executor& executor();

// Computes all pending tensors (the full sync of torch_pjrt.sync()); returns once everything is
// launched. Does nothing while a step is captured (capture.h).
void sync_all();
// What sync_all() and reads do: launches what computes all pending tensors. False: none was
// pending.
bool sync_devices(bool force_data);
// Computes this alias alone.
void sync_one(Alias& a);
// Blocks until the devices are idle.
void wait_all();

// Once, at load: a fork must not find our locks held by a thread that the child does not have.
void hold_locks_over_forks();
// Does anything still compile or run?
bool busy();

// The tensor's value on the CPU, dense, of its sizes and dtype. It may alias device memory: read it
// at once and do not write. A pending value is computed first, with all other pending ones: a graph
// cut, counted with the user's line under `why` ("item", "copy to cpu").
at::Tensor read(Impl& t, const char* why);

// A computed buffer's bytes as a CPU tensor, which may alias it.
at::Tensor to_host(const client::DataPtr& data);

// The alias's value as a buffer: uploaded where it is on the host, computed with all other pending
// values where it is pending (counted as CompiledInputSync).
client::DataPtr computed(Alias& a);

// A full sync of one device: the plan that ran, and by request root the id of its alias. No plan:
// nothing was pending.
struct Synced {
  exec::PlanPtr plan;
  std::vector<uint64_t> ids;
};
Synced sync_captured(int device);

// The graph that a sync of these tensors would run, without running it.
exec::GraphRecord describe(c10::ArrayRef<at::Tensor> tensors);

// Releases the GIL for its lifetime where the calling thread holds it. Provided by src/bind.
class GilRelease {
 public:
  GilRelease();
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  static void set_provider(void* (*release)(), void (*acquire)(void*));

 private:
  void* state_;
};

}  // namespace tp::torch_room
