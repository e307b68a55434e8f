// Grid sampling (2-d and 3-d): rules of the rows that upsample.cpp lists. Pure functions; any
// thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

void grid_sample_type(const Args& a, std::vector<Type>& out);
void grid_sample_lower(Lowering& l, std::vector<V>& out);
void grid_sample_backward_type(const Args& a, std::vector<Type>& out);
void grid_sample_backward_lower(Lowering& l, std::vector<V>& out);

}  // namespace tp::ops
