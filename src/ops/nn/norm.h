// What the normalisations share: dtype rules of eager's CPU kernels, moments, and the gradient
// through them. Pure functions; any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

// The dtype of statistics and parameter gradients: the input's, or f32 where a half input comes
// with f32 parameters. Throws with eager's words for other mixtures and for inputs that are not
// floating; in the forward direction the parameters have to be of one dtype.
DType param_dtype(const Args& a, std::initializer_list<std::string_view> params,
                  std::string_view kernel, bool forward = false);

// How the values of a normalisation fall into groups: over `reduced` dims the moments are taken.
struct Groups {
  IntList reduced, kept;
  int64_t count = 1;  // values in a group
};
Groups groups_over(Type x, IntList reduced);

struct Moments {
  V mean, variance, centered;  // per group; x - mean
};
Moments moments(Builder& b, V x, const Groups& g);
// 1 / sqrt(variance + eps); 0 where both are 0.
V inverse_std(Builder& b, Lowering& l, V variance);

// Gradient of y = (x - mean) * rstd at x, both moments being functions of x. rstd stretched over x.
V through_moments(Builder& b, V grad, V normalized, V rstd, const Groups& g);

// An argument in f32 or wider; invalid V where None.
V computed(Lowering& l, std::string_view name);
// Appends v in the type of result `out.size()`, or nothing's V where that result is masked.
void put_result(Lowering& l, std::vector<V>& out, V v);

// batch_norm.cpp
void batch_norm_type(const Args& a, std::vector<Type>& out);
void batch_norm_functional_type(const Args& a, std::vector<Type>& out);
void batch_norm_stateless_type(const Args& a, std::vector<Type>& out);
void batch_norm_update_type(const Args& a, std::vector<Type>& out);
void batch_norm_lower(Lowering& l, std::vector<V>& out);
void batch_norm_update_lower(Lowering& l, std::vector<V>& out);
void batch_norm_backward_type(const Args& a, std::vector<Type>& out);
void batch_norm_backward_lower(Lowering& l, std::vector<V>& out);

}  // namespace tp::ops
