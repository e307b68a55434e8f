// The interpreter of graphs without a program (exec/tiers.h): node by node, by PyTorch's CPU
// kernels on the memory of the same buffers, the way host ops call them (call_site.h). What has no
// such kernel, and random numbers, run as programs of one op. Any thread.
#pragma once
#include "exec/interpreter.h"

namespace tp::torch_room {

exec::Interpreter& host_interpreter();

}  // namespace tp::torch_room
