// Host ops: calls without a lowering that become a node of the graph all the same. Where the
// program runs it calls back into this process, and the process calls PyTorch's CPU kernel on views
// of the program's own buffers.
//
//   host_op.cpp     which calls may be one, and what their results look like
//   host_call.cpp   the callback
//   host_check.cpp  _linalg_check_errors, as part of the program
//
// Threads: recording is called by any thread, with no lock of ours held. The callback is called by
// the plugin on the thread that executes or on one of its own; no thread of ours that holds the GIL
// waits for it (src/torch/runtime releases it), so a kernel may take it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <optional>

#include "pjrt/ffi.h"
#include "torch/recorder.h"

namespace tp::torch_room {

// Records the call on top of `stack` and replaces its arguments by its results. False, with the
// stack untouched, where the call has to run on the CPU: the client has no host calls, the shapes
// of its results follow from values, it draws random numbers, or its arguments are not the
// device's.
bool record_host_op(const c10::OperatorHandle& op, Stack* stack);

// Have programs of the process's client host calls? The handler is registered then.
bool client_calls_back();

// Can an overload of that op be a host op, whatever the client?
bool is_host_op(std::string_view name);

// The result of the CPU kernel on made-up values of the stack's types and strides. Throws
// ops::NoType where the kernel does not take them.
std::vector<at::Tensor> dry_run(const c10::OperatorHandle& op, Stack stack);

// While it lives, the calling thread's ops on CPU tensors are the kernels alone, whatever modes it
// is in.
class KernelsOnly {
 public:
  KernelsOnly();

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  c10::AutoGradMode no_grad_{false};
};
// Calls the CPU's kernel, whatever modes the calling thread is in.
void call_on_cpu(const c10::OperatorHandle& op, Stack* stack);
// Tensors of a stack of results, lists flattened.
std::vector<at::Tensor> tensors_of(const Stack& results);
// The out= overload of a functional one, where it has one.
std::optional<c10::OperatorHandle> out_form(const c10::OperatorHandle& functional);

// The callback behind ops::kHostTarget.
pjrt::ffi::Error* run_host_op(pjrt::ffi::Frame* frame);

// A host op's attributes beyond its schema's arguments: raise where output `info` says that the
// factorisation failed, in the words of linalg.`check`.
extern const ir::Symbol kHostCheck, kHostInfo, kHostIsMatrix;
void register_host_check(torch::Library& m);
// What the error check of a call is called whose own kernel raises where the factorisation failed;
// empty: it has none.
std::string_view checked_name(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args);
// Reads the results of such a call, so that it raises at its line, unless cuts are forbidden.
void raise_here(std::string_view checked, const Stack& results);

}  // namespace tp::torch_room
