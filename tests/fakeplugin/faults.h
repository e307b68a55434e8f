// Faults at every entry of the API table: wraps what stands there, so that a script can name any C
// function.
#pragma once
#include "objects.h"

namespace fake {

// Call once, when the table is filled.
void wrap_for_faults(PJRT_Api& api);

}  // namespace fake
