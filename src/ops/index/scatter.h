// Rows' rules of the writing half of the index family (scatter.cpp, index_put.cpp); index.cpp lists
// them. Any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

void scatter_src_lower(Lowering& l, std::vector<V>& out);
void scatter_value_lower(Lowering& l, std::vector<V>& out);
void scatter_reduce_lower(Lowering& l, std::vector<V>& out);
void scatter_value_reduce_lower(Lowering& l, std::vector<V>& out);
void scatter_add_lower(Lowering& l, std::vector<V>& out);
void scatter_reduce_two_lower(Lowering& l, std::vector<V>& out);
void index_add_lower(Lowering& l, std::vector<V>& out);
void index_copy_lower(Lowering& l, std::vector<V>& out);
void index_reduce_lower(Lowering& l, std::vector<V>& out);
void index_fill_type(const Args& a, std::vector<Type>& out);
void index_fill_lower(Lowering& l, std::vector<V>& out);
void put_type(const Args& a, std::vector<Type>& out);
void put_lower(Lowering& l, std::vector<V>& out);
void masked_scatter_type(const Args& a, std::vector<Type>& out);
void masked_scatter_lower(Lowering& l, std::vector<V>& out);
void masked_scatter_backward_type(const Args& a, std::vector<Type>& out);
void masked_scatter_backward_lower(Lowering& l, std::vector<V>& out);

void index_put_type(const Args& a, std::vector<Type>& out);
void index_put_lower(Lowering& l, std::vector<V>& out);
void index_tensor_lower(Lowering& l, std::vector<V>& out);

}  // namespace tp::ops
