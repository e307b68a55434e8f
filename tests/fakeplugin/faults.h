// Faults at every entry of the API table: wraps what stands there, so that a script can name any C
// function.
#pragma once
#include "objects.h"

namespace fake {

// Call once, when the table is filled. Empties the entries that TORCH_PJRT_FAKE_WITHOUT names,
// joined by commas: what an older plugin lacks.
void wrap_for_faults(PJRT_Api& api);

}  // namespace fake
