// The parts of the shape family: each file gives its rows, shape.cpp joins them. Any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

Family view_copy_rows();  // copies, writes and gradients of view ops
Family pad_rows();        // padding and image patches

}  // namespace tp::ops
