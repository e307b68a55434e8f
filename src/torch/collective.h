// Collectives of several processes as instructions of the recorded program.
//
// A collective is one functional op, torch_pjrt::collective, recorded like any host op
// (host_op.h): where the program runs it calls back into this process, which calls the group's
// engine (c10d's gloo) on the program's own buffers. Each takes the process's token and gives the
// next one, so that all of them run in the order in which they were recorded, also those whose
// result nobody reads, and across programs: each rank then pairs the same calls.
//
//   collective.cpp     the op: recording, and its kernel
//   process_group.cpp  the c10d backend "xla" and c10d's ops on tensors of device xla
//
// Threads: recording from any thread, one at a time (the token's lock, taken without the GIL). The
// kernel runs on threads of the plugin; a group's state has a lock of its own.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace tp::torch_room {

// What a rank has of a group; made by the process group, found by name where a program runs.
struct CollectiveGroup {
  std::string name;
  int rank = 0, size = 1;
  c10::intrusive_ptr<c10d::Backend> engine;  // of CPU tensors
  c10::intrusive_ptr<c10d::Store> store;
  std::chrono::milliseconds timeout{};
};

// Until release_group() programs find the group by its name. A second group of one name replaces
// the first.
void publish_group(const CollectiveGroup& group);
void release_group(const std::string& name);

// Kinds, and their parameters: all_reduce [reduce op], broadcast [root], reduce [reduce op, root],
// all_gather [], gather [root], scatter [root], reduce_scatter [reduce op], all_to_all [rows sent
// to each rank, rows received from each], send [to, tag], recv [from or -1, tag].
struct CollectiveCall {
  std::string kind;
  std::vector<int64_t> shape;  // of the result; [0] where this rank gets none
  std::vector<int64_t> parameters;
};

// Records the call and gives its result, pending. `input` is of device xla. Throws the errors of
// c10d where the dtype has no such reduction, RuntimeError where the device's plugin has no
// collectives.
at::Tensor record_collective(const CollectiveGroup& group, const CollectiveCall& call,
                             const at::Tensor& input);

// Were collectives recorded that no sync has launched?
bool collectives_pending();

// The token of a device: s32[1]. A traced function (trace.h) that has collectives takes it as an
// argument: between set_traced_token(stand-in) and set_traced_token({}) the calling thread's
// collectives use that one.
at::Tensor collective_token(int device);
void set_traced_token(at::Tensor token);

}  // namespace tp::torch_room
