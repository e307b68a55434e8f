// What a recorded function takes for a tensor: its buffer, where that is, its value. Callers hold
// the GIL.
#pragma once
#include <ATen/core/Tensor.h>

#include "client/computation_client.h"
#include "torch/tensor.h"

namespace tp::torch_room {

// With what the tensor's window shows: its own where it is all of a buffer, else one that is made.
// A pending tensor is computed first.
client::DataPtr buffer_of(const at::Tensor& t, int device);

// Where that buffer is: the program is compiled for that. Of a window or a pending value only the
// program that makes it says so, and the call needs it anyway. Null: on one device, or on the host.
shard::Ref sharding_of_argument(const at::Tensor& t, int device);

// The value of all of an alias's memory. Uploads a host-state alias.
ir::Value root_value(Alias& a);

}  // namespace tp::torch_room
