// Convolution arguments: reading, eager's checks in eager's order, result dims (conv_shape.h).
#include "ops/nn/conv_shape.h"

#include <algorithm>

#include "base/error.h"
#include "ops/core/eager_text.h"

namespace tp::ops {
namespace {

IntList expanded(const Args& a, std::string_view name, size_t n) {
  IntList v = a.ints_or(name, {});
  if (v.size() == 1) v.resize(n, v[0]);
  if (v.size() != n)
    fail(Code::kRuntime,
         cat("expected ", name, " to be a single integer value or a list of ", n,
             " values to match the convolution dimensions, but got ", name, "=", size_text(v)));
  return v;
}

bool any_below(const IntList& v, int64_t limit) {
  return std::any_of(v.begin(), v.end(), [limit](int64_t x) { return x < limit; });
}

void check_ranges(const ConvArgs& c) {
  if (any_below(c.padding, 0)) fail(Code::kRuntime, "negative padding is not supported");
  if (any_below(c.output_padding, 0))
    fail(Code::kRuntime, "negative output_padding is not supported");
  if (any_below(c.stride, 1)) fail(Code::kRuntime, "non-positive stride is not supported");
  if (any_below(c.dilation, 1))
    fail(Code::kRuntime,
         cat("dilation should be greater than zero, but got ", size_text(c.dilation)));
  if (c.groups <= 0) fail(Code::kRuntime, "non-positive groups is not supported");
}

void check_weight(const ConvArgs& c, Type input, Type weight) {
  if (weight.rank() != input.rank())
    fail(Code::kRuntime,
         cat("Expected ", weight.rank(), "-dimensional input for ", weight.rank(),
             "-dimensional weight ", size_text(weight.dims()), ", but got ", input.rank(),
             "-dimensional input of size ", size_text(input.dims()), " instead"));
  if (weight.dim(0) < c.groups)
    fail(Code::kRuntime,
         cat("Given groups=", c.groups, ", expected weight to be at least ", c.groups,
             " at dimension 0, but got weight of size ", size_text(weight.dims()), " instead"));
  if (weight.dim(0) % c.groups != 0)
    fail(Code::kRuntime,
         cat("Given groups=", c.groups, ", expected weight to be divisible by ", c.groups,
             " at dimension 0, but got weight of size [", size_text(weight.dims()), "] instead"));
  int64_t want = c.transposed ? weight.dim(0) : weight.dim(1) * c.groups;
  if (input.dim(1) != want)
    fail(Code::kRuntime,
         cat("Given ", c.transposed ? "transposed=" : "groups=", c.transposed ? 1 : c.groups,
             ", weight of size ", size_text(weight.dims()), ", expected input",
             size_text(input.dims()), " to have ", want, " channels, but got ", input.dim(1),
             " channels instead"));
}

void check_bias(const ConvArgs& c, Type weight, Type bias) {
  int64_t n = c.transposed ? weight.dim(1) * c.groups : weight.dim(0);
  if (bias.rank() != 1 || bias.dim(0) != n)
    fail(Code::kRuntime,
         cat("Given ", c.transposed ? "transposed=1, " : "", "weight of size ",
             size_text(weight.dims()), ", expected bias to be 1-dimensional with ", n,
             " elements, but got bias of size ", size_text(bias.dims()), " instead"));
}

void check_kernel(const ConvArgs& c, Type input, Type weight) {
  IntList padded, kernel;
  bool fits = true;
  for (size_t i = 0; i < c.spatial(); ++i) {
    padded.push_back(input.dim(i + 2) + 2 * c.padding[i]);
    kernel.push_back(c.dilation[i] * (weight.dim(i + 2) - 1) + 1);
    fits &= padded[i] >= kernel[i];
  }
  if (!fits)
    fail(Code::kRuntime, cat("Calculated padded input size per channel: (", join(padded, " x "),
                             "). Kernel size: (", join(kernel, " x "),
                             "). Kernel size can't be greater than actual input size"));
}

// "NAME_height: 1 NAME_width: 2 "
std::string per_dim(std::string_view name, const IntList& v) {
  static constexpr std::string_view kDims[] = {"depth", "height", "width"};
  std::string s;
  for (size_t i = 0; i < v.size(); ++i)
    s += cat(" ", name, "_", kDims[3 - v.size() + i], ": ", v[i]);
  return s;
}

void check_output_padding(const ConvArgs& c) {
  for (size_t i = 0; i < c.spatial(); ++i)
    if (c.output_padding[i] >= c.stride[i] && c.output_padding[i] >= c.dilation[i])
      fail(Code::kRuntime,
           cat("output padding must be smaller than either stride or dilation, but got",
               per_dim("output_padding", c.output_padding), per_dim("stride", c.stride),
               per_dim("dilation", c.dilation)));
}

}  // namespace

ConvArgs conv_args(const Args& a, int weight_rank) {
  size_t n = static_cast<size_t>(std::max(weight_rank - 2, 0));
  ConvArgs c;
  c.stride = expanded(a, "stride", n);
  c.padding = expanded(a, "padding", n);
  c.dilation = expanded(a, "dilation", n);
  c.output_padding = expanded(a, "output_padding", n);
  c.transposed = a.b("transposed");
  c.groups = a.i("groups");
  return c;
}

IntList conv_output_dims(const ConvArgs& c, Type input, Type weight, std::optional<Type> bias) {
  check_ranges(c);
  check_weight(c, input, weight);
  if (bias) check_bias(c, weight, *bias);
  if (c.transposed)
    check_output_padding(c);
  else
    check_kernel(c, input, weight);
  if (input.dim(0) != 0 && input.dim(1) != 0 && input.numel() == 0)
    fail(Code::kRuntime,
         cat("Only zero batch or zero channel inputs are supported, but got input shape: ",
             size_text(input.dims())));
  IntList out{input.dim(0), c.transposed ? weight.dim(1) * c.groups : weight.dim(0)};
  if (!c.transposed && input.dim(1) == 0)
    out[1] = 0;  // eager's result of a convolution over no channels
  for (size_t i = 0; i < c.spatial(); ++i) {
    int64_t in = input.dim(i + 2), reach = c.dilation[i] * (weight.dim(i + 2) - 1);
    out.push_back(c.transposed
                      ? (in - 1) * c.stride[i] - 2 * c.padding[i] + reach + c.output_padding[i] + 1
                      : (in + 2 * c.padding[i] - reach - 1) / c.stride[i] + 1);
  }
  return out;
}

void check_conv_dtypes(Type input, Type weight, std::optional<Type> bias, bool transposed) {
  DType t = input.dtype();
  if (transposed && !ir::is_float(t) && t != DType::kS64)
    fail(Code::kNotImplemented,
         not_implemented_for(cat("slow_conv_transpose", input.rank() > 4 ? 3 : 2, "d_out_cpu"), t));
  if (t == DType::kPred || ir::is_complex(t))
    fail(Code::kNotImplemented, not_implemented_for("slow_conv2d_cpu", t));
  if (bias && bias->dtype() != t)
    fail(Code::kRuntime, cat("Input type (", eager_name(t).cpp, ") and bias type (",
                             eager_name(bias->dtype()).cpp, ") should be the same"));
  if (weight.dtype() != t)
    fail(Code::kRuntime, expected_scalar_type(t, weight.dtype()),
         "convert input or weight, or use torch.autocast");
}

}  // namespace tp::ops
