// What a few ops do around their recording, because neither a row's type nor its layout says it.
// Any thread.
#pragma once
#include <string_view>

#include "torch/recorder.h"

namespace tp::torch_room {

// `args`: the call's arguments, which `record` takes from the stack and replaces by the results.
using Record = c10::function_ref<void()>;
using Around = void (*)(Stack& stack, size_t args, Record record);

// By the name of the overload: "aten::select_scatter". Null: nothing, as for most.
Around around(std::string_view overload);

}  // namespace tp::torch_room
