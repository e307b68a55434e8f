// Reads: a buffer is waited for, a pending value is computed first, and bytes become a CPU tensor.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "base/error.h"
#include "base/text.h"
#include "client/registry.h"
#include "exec/blame.h"
#include "probe/probe.h"
#include "torch/asserts.h"
#include "torch/checks.h"
#include "torch/cuts.h"
#include "torch/errors.h"
#include "torch/runtime.h"
#include "torch/trace.h"
#include "torch/view_memory.h"

namespace tp::torch_room {

using client::DataPtr;

namespace {

// Waits for the alias's buffer. False where its program failed and said so before: the alias has
// its pending value back and the caller computes it anew. The first time, and in every thread that
// was waiting by then, that failure is thrown.
bool await_data(Alias& a, const DataPtr& data) {
  GilRelease no_gil;
  client::check_not_forked();
  bool waited = !data->ready();
  try {
    data->await();
    return true;
  } catch (const Error& e) {
    auto lost = executor().recover(data.get());
    if (!lost) throw;
    Error blamed = exec::with_line(e, lost->blame);
    if (!lost->value) throw lost->lost.empty() ? blamed : exec::lost_error(blamed, lost->lost);
    {
      Alias::State old;
      std::lock_guard lock(state_lock());
      if (a.buffer() == data)
        old = a.exchange(Alias::Pending{lost->value, e.raised_by() >= 0 && !lost->reported});
    }
    if (!lost->reported || (waited && lost->concerned)) throw blamed;
    return false;
  }
}

}  // namespace

at::Tensor to_host(const DataPtr& data) {
  ir::Type type = data->type();
  auto options = at::TensorOptions(to_scalar_type(type.dtype()));
  if (const void* p = data->host_pointer())
    return at::from_blob(const_cast<void*>(p), ref_of(type.dims()), [data](void*) {}, options);
  at::Tensor t = at::empty(ref_of(type.dims()), options);
  GilRelease no_gil;
  client::client().transfer_from_device(*data, t.mutable_data_ptr(),
                                        std::make_shared<at::Tensor>(t));
  return t;
}

namespace {

bool raised(const Alias& a) {
  std::lock_guard lock(state_lock());
  return a.pending() && a.raised();
}

// A read computes everything pending, so that a step is one program. Where that fails for a reason
// that may have nothing to do with this tensor, the tensor is computed by itself.
void sync_for(Alias& a) {
  try {
    sync_devices(false);
    if (!raised(a)) return;
  } catch (const Error& e) {
    probe::say(0, cat("the graph of all pending tensors failed (", e.message(),
                      "); computing the one that is read"));
  }
  sync_one(a);
}

// A sync has run since the alias was seen to wait, at that version. What it leaves behind as it was
// no further sync would compute either.
void check_computed(const Alias& a, uint64_t version) {
  {
    std::lock_guard lock(state_lock());
    if (!a.pending() || a.version != version) return;
  }
  if (a.traced)
    fail(Code::kRuntime, "this tensor was made while a function was traced: it has no value",
         "return it from the traced function");
  check_device(device_index(a.device));
  check(false, "a sync computes what is pending");
}

at::Tensor root_on_host(Alias& a, const char* why) {
  if (tracing() && a.traced) t_trace->refuse(cat("it reads a value (", why, ")"));
  Read reading(why);
  bool cut = false;
  for (;;) {
    DataPtr data;
    bool taken;
    uint64_t version;
    {
      std::lock_guard lock(state_lock());
      if (a.host().defined()) return a.host();
      data = a.buffer();
      taken = a.taken();
      version = a.version;
    }
    if (taken) {
      wait_while_taken();
      continue;
    }
    if (data) {
      if (!await_data(a, data)) continue;
      raise_failed_asserts(cut ? Look::kAndWait : Look::kWhatIsReady);
      return to_host(data);
    }
    reading.cut();
    cut = true;
    sync_for(a);
    reading.synced();
    check_computed(a, version);
  }
}

}  // namespace

client::DataPtr computed(Alias& a) {
  static probe::Counter& syncs = probe::counter("CompiledInputSync");
  for (int tries = 0;; ++tries) {
    bool taken, host;
    {
      std::lock_guard lock(state_lock());
      if (a.buffer()) return a.buffer();
      taken = a.taken();
      host = a.host().defined();
    }
    check(tries < 100000, "an alias is in one of its states");
    if (taken) {
      wait_while_taken();
    } else if (host) {
      GilRelease no_gil;
      upload_host(a);
    } else {
      syncs.add();
      sync_for(a);
    }
  }
}

at::Tensor read(Impl& t, const char* why) {
  return guarded(
      [&] {
        Alias& a = *t.alias();
        at::Tensor root = root_on_host(a, why);
        if (t.whole()) return root;
        at::Tensor memory = a.strides ? memory_of(root, *a.strides) : root.reshape(-1);
        memory = in_elements_of(memory, t.dtype().toScalarType());
        return memory.as_strided(t.sizes(), t.strides(), t.storage_offset());
      },
      [&] { return cat("reading a tensor (", why, ")"); });
}

}  // namespace tp::torch_room
