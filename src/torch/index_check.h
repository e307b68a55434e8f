// Are the indices of a gather, scatter, embedding or class loss in range? Where the host still has
// their values (they were just brought to the device, or are one number) this is asked as the op is
// recorded, and answered with eager's exception. Inside a program nobody can raise: indices that
// were computed on the device are clamped where they read and dropped where they write.
//
// Threads: any.
#pragma once
#include <ATen/core/ivalue.h>

#include <string_view>

namespace tp::torch_room {

struct OpInfo;
// Throws where an index is out of range by the row's rule (ops::Row::index). `args` in its order.
void check_indices(const OpInfo& op, c10::ArrayRef<c10::IValue> args);

}  // namespace tp::torch_room
