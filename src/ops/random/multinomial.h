// Draws of categories; the row stands in random.cpp. Pure functions; any thread.
#pragma once
#include <string>

#include "ops/core/row.h"

namespace tp::ops {

void multinomial_type(const Args& a, std::vector<Type>& out);
void multinomial_lower(Lowering& l, std::vector<V>& out);
std::string multinomial_words(DType want, DType have);  // of another out= than int64

}  // namespace tp::ops
