// Element types of the IR as PJRT numbers them, and back. Pure functions; any thread.
#pragma once
#include "ir/dtype.h"
#include "pjrt/api.h"

namespace tp::client {

PJRT_Buffer_Type to_pjrt(ir::DType t);
// Throws kNotImplemented for an element type that PyTorch has no name for (4-bit integers, tokens).
ir::DType from_pjrt(PJRT_Buffer_Type t);

}  // namespace tp::client
