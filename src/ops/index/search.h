// The searching half of the sort family: membership, insertion points, histograms. sort.cpp lists
// the rows. Any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// Insertion points of `values` [.., m] in `sorted` (1-d, or of values' leading dims): s64 of
// values' dims. `right`: behind equal elements. NaN stands behind everything.
V insertion_points(Builder& b, V sorted, V values, bool right);

void isin_lower(Lowering& l, std::vector<V>& out);
void searchsorted_type(const Args& a, std::vector<Type>& out);
void searchsorted_lower(Lowering& l, std::vector<V>& out);
void bucketize_type(const Args& a, std::vector<Type>& out);
void bucketize_lower(Lowering& l, std::vector<V>& out);
void histc_type(const Args& a, std::vector<Type>& out);
void histc_lower(Lowering& l, std::vector<V>& out);

}  // namespace tp::ops
