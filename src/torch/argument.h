// The buffer that a compiled function takes for a tensor. Callers hold the GIL.
#pragma once
#include <ATen/core/Tensor.h>

#include "client/computation_client.h"

namespace tp::torch_room {

// With what the tensor's window shows: its own where it is all of a buffer, else one that is made.
// A pending tensor is computed first.
client::DataPtr buffer_of(const at::Tensor& t, int device);

}  // namespace tp::torch_room
