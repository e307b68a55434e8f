// What a convolution's arguments say, and eager's checks of them. Pure functions; any thread.
#pragma once
#include "ops/core/row.h"

namespace tp::ops {

struct ConvArgs {
  IntList stride, padding, dilation, output_padding;  // one entry a spatial dim
  bool transposed = false;
  int64_t groups = 1;
  size_t spatial() const { return stride.size(); }
};

ConvArgs conv_args(const Args& a, int weight_rank);
// Dims of the result. Throws with eager's words where the arguments do not fit together.
IntList conv_output_dims(const ConvArgs& c, Type input, Type weight, std::optional<Type> bias);
void check_conv_dtypes(Type input, Type weight, std::optional<Type> bias, bool transposed);

}  // namespace tp::ops
